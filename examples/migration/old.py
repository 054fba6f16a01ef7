"""The support agent in Semantic Kernel."""

from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function


class OrderPlugin:
    """Access to the orders."""

    @kernel_function
    def lookup_order(self, order_id: str) -> str:
        """Look up where an order is and whether it has been paid."""
        return f"{order_id} is paid"


def agent() -> ChatCompletionAgent:
    """Return the agent; the API key comes from the environment."""
    return ChatCompletionAgent(
        service=OpenAIChatCompletion("gpt-4o-mini", async_client=AsyncOpenAI()),
        name="support",
        instructions="You answer questions about orders. Look orders up, do not guess.",
        plugins=[OrderPlugin()],
    )
