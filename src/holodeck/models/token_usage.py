"""Token usage of model requests, the meter that adds it up, and what it costs."""

import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field, PrivateAttr, model_validator

from holodeck.models.base import Count, Model, NonBlank


class TokenUsage(Model):
    """Tokens that a model read and wrote."""

    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    total_tokens: Count = 0

    @model_validator(mode="after")
    def _total_is_at_least_the_sum(self) -> "TokenUsage":
        if self.total_tokens < self.prompt_tokens + self.completion_tokens:
            raise ValueError("total_tokens is less than prompt_tokens + completion_tokens")
        return self

    @classmethod
    def of(cls, prompt_tokens: int, completion_tokens: int) -> "TokenUsage":
        """Return the usage with the sum of both as total."""
        return cls(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            total_tokens=prompt_tokens + completion_tokens,
        )

    def __sub__(self, part: "TokenUsage") -> "TokenUsage":
        """Return the usage without a part of it."""
        return TokenUsage(
            prompt_tokens=max(0, self.prompt_tokens - part.prompt_tokens),
            completion_tokens=max(0, self.completion_tokens - part.completion_tokens),
            total_tokens=max(0, self.total_tokens - part.total_tokens),
        )

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        if not self.total_tokens:
            return other
        return TokenUsage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
        )


@dataclass
class UsageMeter:
    """Counts requests to models and adds up the token usage of their responses."""

    by_model: dict[str, TokenUsage] = field(default_factory=dict)
    """Token usage by the name of the model, in the order of first use."""
    requests: int = 0
    """Requests that were sent, answered or not."""
    failed: int = 0
    """Requests without an answer."""
    unmetered: int = 0
    """Answers whose token usage is unknown."""
    cache_hits: int = 0
    """Answers that came from the response cache: no request was sent."""
    seconds: float = 0.0
    """Time that the requests took, without waiting for a slot."""

    @property
    def usage(self) -> TokenUsage:
        """Usage of all models; an answer of unknown usage counts as zero."""
        return sum(self.by_model.values(), TokenUsage())

    @property
    def known_usage(self) -> TokenUsage | None:
        """Usage of all models; None if the usage of an answer is unknown."""
        return None if self.unmetered else self.usage

    def add(
        self,
        usage: TokenUsage | None,
        model: str = "",
        *,
        requests: int = 1,
        failed: int = 0,
        seconds: float = 0.0,
    ) -> None:
        """Count an answer and the requests that it took; usage without tokens is unknown."""
        self.requests += requests
        self.failed += failed
        self.seconds += seconds
        if usage is None or not usage.total_tokens:
            self.unmetered += 1
        else:
            self.by_model[model] = self.by_model.get(model, TokenUsage()) + usage

    def add_failed(self, requests: int = 1) -> None:
        """Count requests that ended without an answer."""
        self.requests += requests
        self.failed += requests

    def merge(self, other: "UsageMeter") -> None:
        """Add everything that another meter counted."""
        for model, usage in other.by_model.items():
            self.by_model[model] = self.by_model.get(model, TokenUsage()) + usage
        self.requests += other.requests
        self.failed += other.failed
        self.unmetered += other.unmetered
        self.cache_hits += other.cache_hits
        self.seconds += other.seconds


def sum_of(usages: Iterable[TokenUsage | None]) -> TokenUsage | None:
    """Return the sum; None if there is nothing to add up, or if one of them is unknown."""
    total = None
    for usage in usages:
        if usage is None:
            return None
        total = usage if total is None else total + usage
    return total


Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
CURRENCY = "USD"
"""The currency of prices that name none, and of list prices."""
_DATE = re.compile(r"-20\d\d-?\d\d-?\d\d$")
"""The version at the end of a model's name, as in `gpt-4o-mini-2024-07-18`."""
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
    """Currency of all prices, any text (default: USD). List prices count only in USD."""
    models: dict[NonBlank, Price] = {}
    """Price for each `provider/model`, `model` or pattern such as `openai/gpt-*`; the longest
    fitting name wins. `agent` is an agent that does not say which model answered. Other models have
    the list price of their provider, if that is known."""

    _elsewhere: frozenset[str] = PrivateAttr(default=frozenset())
    _own: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def elsewhere(self) -> frozenset[str]:
        """The models at other endpoints than their provider's, which have no list price."""
        return self._elsewhere

    def without_list(self, models: frozenset[str]) -> "PriceTable":
        """Return the prices, without list prices for these models."""
        return self.with_private(_elsewhere=self._elsewhere | models)

    def of_agent(self, names: Iterable[str]) -> "PriceTable":
        """Return the prices, of which those with these names are in the agent.yaml itself."""
        return self.with_private(_own=frozenset(names))

    def unused(self, models: Iterable[str]) -> list[str]:
        """Return the names in the agent.yaml itself that stand for none of these models."""
        used = {self._name_of(model) for model in models}
        return [name for name in self.models if name in self._own - used]

    @property
    def unit(self) -> str:
        """The currency."""
        return self.currency or CURRENCY

    def price_of(self, model: str) -> Price | None:
        """Return the price of a `provider/model`; None if it is unknown."""
        written = self._name_of(model)
        if written is not None:
            return self.models[written]
        return Price(input=0, output=0) if model.partition("/")[0] == "local" else None

    def _name_of(self, model: str) -> str | None:
        """Return the name that stands for a `provider/model`; None if none does."""
        name = model.partition("/")[2]
        undated = [_DATE.sub("", written) for written in (model, name)]
        exact = [written for written in (model, name, *undated) if written in self.models]
        fitting = [
            pattern
            for pattern in self.models
            if fnmatchcase(model, pattern) or fnmatchcase(name, pattern)
        ]
        return exact[0] if exact else max(fitting, key=len, default=None)


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
    list_prices: dict[str, str] = Field(default={}, exclude_if=operator.not_)
    """Model whose list price counts → the list, with its version and the day."""
