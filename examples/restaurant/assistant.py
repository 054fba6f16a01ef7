"""A restaurant's assistant; the client finds its model by OPENAI_API_KEY and OPENAI_BASE_URL."""

from typing import Annotated

from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function

PRICES = {"Clam Chowder": 9.5, "Cobb Salad": 12.0, "Chai Tea": 4.25}


class Menu:
    """What there is to eat."""

    @kernel_function(description="List the dishes of today.")
    def get_specials(self) -> str:
        return ", ".join(PRICES)

    @kernel_function(description="What a dish costs, in USD.")
    def get_price(self, dish: Annotated[str, "as on the menu"]) -> float:
        return PRICES[dish]


class Tables:
    """Who sits where; each test case has tables of its own."""

    def __init__(self) -> None:
        self._free = 2

    @kernel_function(description="Reserve a table.")
    def reserve(self, guests: int, time: Annotated[str, "such as 19:30"]) -> str:
        if not self._free:
            raise ValueError("no table is free")
        self._free -= 1
        return f"table for {guests} at {time}"

    @kernel_function(description="Cancel all reservations of today.")
    def cancel_all(self) -> str:
        self._free = 2
        return "cancelled"


def build() -> ChatCompletionAgent:
    """Return an assistant."""
    return ChatCompletionAgent(
        service=OpenAIChatCompletion("gpt-4.1-mini"),
        name="assistant",
        instructions="Answer from the menu. Reserve a table once you know for how many and when.",
        plugins=[Menu(), Tables()],
    )
