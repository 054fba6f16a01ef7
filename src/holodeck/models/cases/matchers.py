"""Matchers: the conditions for arguments and results of tool calls, and for attributes of spans."""

from typing import Annotated, TypeVar

from pydantic import Field, model_validator

from holodeck.models.base import AbsoluteTolerance, Json, Model, NonBlank, RelativeTolerance

MATCHER_KEYS = ("equals", "regex", "number", "fuzzy")


class NumberMatcher(Model):
    """A number within a tolerance."""

    value: Annotated[float, Field(allow_inf_nan=False)]
    absolute_tolerance: AbsoluteTolerance = 1e-9
    relative_tolerance: RelativeTolerance = 0.0


class ArgMatcher(Model):
    """The condition for an argument of a tool call; exactly one key is set."""

    equals: Json = None
    """The exact value; needed only for a literal that looks like a matcher."""
    regex: NonBlank | None = None
    """The whole text must match."""
    number: NumberMatcher | None = None
    """Equal as a number within a tolerance; text that contains a number counts."""
    fuzzy: NonBlank | None = None
    """Equal but for case, surrounding white space, thousands separators and percent signs."""

    @model_validator(mode="after")
    def _has_one_key(self) -> "ArgMatcher":
        if len(self.model_fields_set) != 1:
            raise ValueError(f"a matcher has exactly one of {', '.join(type(self).model_fields)}")
        return self


class ResultMatcher(ArgMatcher):
    """What the result of a tool call must be; exactly one key is given."""

    contains: NonBlank | None = None
    """Text that the result contains; a result that is not text is compared as JSON."""


_Matcher = TypeVar("_Matcher", bound=ArgMatcher)


def to_matcher(value: Json, kind: type[_Matcher]) -> _Matcher:
    """Return the value as a matcher: itself if it is written as one, else its equal."""
    if isinstance(value, dict) and value and value.keys() <= kind.model_fields.keys():
        number = value.get("number")
        if isinstance(number, int | float) and not isinstance(number, bool):
            return kind.model_validate({**value, "number": {"value": number}})
        return kind.model_validate(value)
    return kind(equals=value)
