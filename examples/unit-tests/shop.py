"""Two agents of a shop, as they run in production: nothing in them is about tests."""

from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function

INSTRUCTIONS = "Help customers with their orders. Never invent a result."


def get_order(order_id: int) -> dict:
    """Return an order."""
    raise ConnectionError(f"the database with order {order_id} is not here")


def refund(order_id: int) -> str:
    """Pay an order back."""
    raise ConnectionError(f"the bank that pays order {order_id} back is not here")


class Orders:
    """The same tools as a plugin of Semantic Kernel."""

    get_order = staticmethod(kernel_function(get_order))
    refund = staticmethod(kernel_function(refund))


def semantic_kernel_agent() -> ChatCompletionAgent:
    """Return the agent on Semantic Kernel."""
    return ChatCompletionAgent(
        name="shop",
        instructions=INSTRUCTIONS,
        service=OpenAIChatCompletion(ai_model_id="gpt-4o-mini"),
        plugins=[Orders()],
    )


def agent_framework_agent() -> Agent:
    """Return the agent on Agent Framework."""
    client = OpenAIChatCompletionClient(model="gpt-4o-mini")
    return Agent(client, INSTRUCTIONS, name="shop", tools=[get_order, refund])
