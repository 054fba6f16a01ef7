"""What models cost: prices by model, and what came of them."""

from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field

from holodeck.models.base import Model, NonBlank

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
OWN_AGENT = "agent"
"""What an agent is called in a table of prices that names no model: Python code, a URL."""


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
        """The price of a `provider/model`; None if it is not known."""
        provider, _, name = model.partition("/")
        for exact in (model, name):
            if exact in self.models:
                return self.models[exact]
        fitting = [one for one in self.models if _matches(one, model, name)]
        if fitting:
            return self.models[max(fitting, key=len)]
        return Price(input=0, output=0) if provider == "local" else None


def _matches(pattern: str, *names: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


class Cost(Model):
    """What a case or a run has cost; None where that is not known."""

    currency: str
    total: Amount | None
    agent: Amount | None
    judges: Amount | None
    simulators: Amount | None = 0.0
    """Of simulated users."""
    unknown: list[str] = []
    """Why something is not known, such as `no price for openai/gpt-x`."""
