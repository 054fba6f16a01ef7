"""Tokens that a model call cost."""

from collections.abc import Iterable
from functools import cache

from pydantic import model_validator

from holodeck.models.base import Count, Model


class TokenUsage(Model):
    """Tokens read and written."""

    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    total_tokens: Count = 0

    @model_validator(mode="after")
    def _total_is_at_least_the_sum(self) -> "TokenUsage":
        if self.total_tokens < self.prompt_tokens + self.completion_tokens:
            raise ValueError("total_tokens is less than prompt_tokens + completion_tokens")
        return self

    @classmethod
    def zero(cls) -> "TokenUsage":
        """Nothing spent."""
        return _nothing()

    @classmethod
    def of(cls, prompt_tokens: int, completion_tokens: int) -> "TokenUsage":
        """Usage whose total is the sum of both."""
        return cls(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            total_tokens=prompt_tokens + completion_tokens,
        )

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        if not self.total_tokens:
            return other
        return TokenUsage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
        )


def sum_of(usages: Iterable[TokenUsage | None]) -> TokenUsage | None:
    """Return the sum; None if there is none to add up, or if one of them is unknown."""
    found = list(usages)
    known = [usage for usage in found if usage is not None]
    return sum(known, _nothing()) if known and len(known) == len(found) else None


@cache
def _nothing() -> TokenUsage:
    """One for all, as each case begins with it."""
    return TokenUsage()
