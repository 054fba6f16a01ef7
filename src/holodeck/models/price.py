"""Prices of models, and the cost of a case or run."""

from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field

from holodeck.models.base import Model, NonBlank

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
UNNAMED_AGENT = "agent"
"""The name in prices of an agent without a `model`: Python code or a URL."""


class Price(Model):
    """The price of a model."""

    input: Amount
    """Price of a million prompt tokens."""
    output: Amount
    """Price of a million completion tokens."""


class PriceTable(Model):
    """Prices of models. Models of `provider: local` cost nothing unless listed."""

    currency: NonBlank | None = None
    """Currency of all prices, any text (default: USD)."""
    models: dict[NonBlank, Price] = {}
    """Price for each `provider/model`, `model` or pattern such as `openai/gpt-*`. An exact name
    wins over a pattern, a longer pattern over a shorter one. The name of an agent in Python code
    or behind a URL without a `model` is `agent`."""

    @property
    def unit(self) -> str:
        """The currency."""
        return self.currency or "USD"

    def price_of(self, model: str) -> Price | None:
        """Return the price of a `provider/model`; None if it is unknown."""
        provider, _, name = model.partition("/")
        for exact in (model, name):
            if exact in self.models:
                return self.models[exact]
        fitting = [pattern for pattern in self.models if _matches(pattern, model, name)]
        if fitting:
            return self.models[max(fitting, key=len)]
        return Price(input=0, output=0) if provider == "local" else None


def _matches(pattern: str, *names: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


class Cost(Model):
    """The cost of a case or a run; None where it is unknown."""

    currency: str
    total: Amount | None
    agent: Amount | None
    judges: Amount | None
    simulators: Amount | None = 0.0
    """Of simulated users."""
    unknown: list[str] = []
    """The reasons for unknown amounts, such as `no price for openai/gpt-x`."""
