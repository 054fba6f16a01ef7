"""The support agent in Microsoft Agent Framework."""

from agent_framework import Agent
from agent_framework_openai import OpenAIChatCompletionClient
from openai import AsyncOpenAI


def lookup_order(order_id: str) -> str:
    """Look up where an order is and whether it has been paid."""
    return f"{order_id} is paid"


def agent() -> Agent:
    """Return the agent; the API key comes from the environment."""
    return Agent(
        OpenAIChatCompletionClient(model="gpt-4o-mini", async_client=AsyncOpenAI()),
        "You answer questions about orders. Look orders up, do not guess.",
        name="support",
        tools=[lookup_order],
    )
