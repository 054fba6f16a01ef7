"""A shop with three agents; the client finds its model by OPENAI_API_KEY and OPENAI_BASE_URL."""

from semantic_kernel.agents import (
    ChatCompletionAgent,
    HandoffOrchestration,
    OrchestrationHandoffs,
)
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function


class Orders:
    @kernel_function(description="Where an order is.")
    def lookup_order(self, order_id: str) -> str:
        return f"order {order_id} is shipped"


class Refunds:
    @kernel_function(description="Pay an order back.")
    def refund(self, order_id: str) -> str:
        return f"order {order_id} is refunded"


def build() -> HandoffOrchestration:
    """Return the three agents and who hands over to whom."""
    model = OpenAIChatCompletion("gpt-4.1-mini")
    triage = ChatCompletionAgent(
        service=model,
        name="triage",
        description="Finds out what the customer wants.",
        instructions="Hand over to orders for everything about an order.",
    )
    orders = ChatCompletionAgent(
        service=model,
        name="orders",
        description="Knows orders.",
        instructions="Look orders up. Hand over to refunds if the customer wants money back.",
        plugins=[Orders()],
    )
    refunds = ChatCompletionAgent(
        service=model,
        name="refunds",
        description="Pays orders back.",
        instructions="Refund the order.",
        plugins=[Refunds()],
    )
    handoffs = OrchestrationHandoffs().add(triage, orders).add(orders, refunds)
    return HandoffOrchestration(members=[triage, orders, refunds], handoffs=handoffs)
