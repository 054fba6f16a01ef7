"""The conditions for arguments and results of tool calls, and the checks of an agent's spans."""

import re
from functools import partial
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator

from holodeck.models.base import (
    AbsoluteTolerance,
    Json,
    Model,
    NonBlank,
    RelativeTolerance,
    ValidAs,
)

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
    """A pattern that matches the whole text: `.*late.*` for a part. The metric `regex` searches."""
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
    """Return the value as a matcher: itself if it is a matcher, else its equal."""
    if isinstance(value, dict) and value and value.keys() <= kind.model_fields.keys():
        number = value.get("number")
        if isinstance(number, int | float) and not isinstance(number, bool):
            return kind.model_validate({**value, "number": {"value": number}})
        return kind.model_validate(value)
    return kind(equals=value)


AS_ARGUMENT = ValidAs(ArgMatcher, partial(to_matcher, kind=ArgMatcher))
AS_RESULT = ValidAs(ResultMatcher, partial(to_matcher, kind=ResultMatcher))


DURATION = "duration_ms"
"""What stands for the duration of a span, in milliseconds, in place of an attribute."""
MAX_SETTLE_S = 30
_PLACEHOLDER = re.compile(r"\{.*\}|\$\{?\w+\}?|<%.*%>")
"""What templates fill; a span may have `{id}` in its name, as in `GET /orders/{id}`."""
_UNFILLED = "nothing fills the placeholder {!r}; write the name or value"
SpanStatus = Literal["ok", "error", "unset"]
Number = Annotated[float, Field(allow_inf_nan=False)]


class CountBounds(Model):
    """How many spans there must be."""

    min: Annotated[int, Field(ge=1)] | None = None
    """Minimum number of spans."""
    max: Annotated[int, Field(ge=0)] | None = None
    """Maximum number of spans."""

    @model_validator(mode="after")
    def _has_bounds(self) -> "CountBounds":
        _require_bounds("count", self.min, self.max)
        return self


class ValueBounds(Model):
    """What a number of the spans must be."""

    of: NonBlank
    """Attribute with a number, or `duration_ms`."""
    min: Number | None = None
    """Minimum value."""
    max: Number | None = None
    """Maximum value."""

    @model_validator(mode="after")
    def _has_bounds(self) -> "ValueBounds":
        _require_bounds(self.of, self.min, self.max)
        return self


def _require_bounds(what: str, least: float | None, most: float | None) -> None:
    if least is None and most is None:
        raise ValueError("checks nothing; write 'min', 'max', or both")
    if least is not None and most is not None and least > most:
        raise ValueError(f"no {what} is at least {least:g} and at most {most:g}")


ASSERTIONS = ("count", "status", "after", "sum", "max", "min")


def _to_attribute_matcher(value: Json) -> ResultMatcher:
    """Return the matcher; a mapping always is a matcher, because no attribute is a mapping.

    Raises ValueError for a value that is probably no attribute, but a pattern or an open place.
    """
    if isinstance(value, dict):
        is_matcher = bool(value) and value.keys() <= ResultMatcher.model_fields.keys()
        return to_matcher(value, ResultMatcher) if is_matcher else ResultMatcher(**value)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise ValueError("has no value; write one, or '{equals: …}'")
    if isinstance(value, str) and _PLACEHOLDER.fullmatch(value):
        raise ValueError(_UNFILLED.format(value))
    if isinstance(value, str) and "*" in value:
        raise ValueError(
            f"{value!r} is compared literally; write '{{regex: …}}' or '{{equals: …}}'"
        )
    return to_matcher(value, ResultMatcher)


class SpanCheck(Model):
    """One check of some of the spans; it has exactly one of `count` to `min`."""

    span: NonBlank
    """Which spans: their name, a glob such as `search *`, or an operation such as `execute_tool`,
    `chat` or `invoke_agent` (`gen_ai.operation.name`)."""
    attributes: Annotated[
        dict[NonBlank, Annotated[Json, ValidAs(ResultMatcher, _to_attribute_matcher)]],
        Field(alias="where"),
    ] = {}
    """Value or matcher for each attribute that the spans must have: `equals`, `regex`, `number`,
    `fuzzy` or `contains`."""
    count: Annotated[int, Field(ge=0)] | CountBounds | None = None
    """Exact number of spans, or `min` and `max`. Every other check fails without such spans."""
    status: SpanStatus | None = None
    """Status of each of the spans. Most instrumentation leaves it `unset` unless there was an
    error."""
    after: NonBlank | None = None
    """Spans, named as in `span`: each of the spans must begin after one of them has ended."""
    sum: ValueBounds | None = None
    """Bounds for the sum of an attribute."""
    max: ValueBounds | None = None
    """Bounds for the largest value of an attribute."""
    min: ValueBounds | None = None
    """Bounds for the smallest value of an attribute."""

    def matchers(self) -> dict[str, ResultMatcher]:
        """Return `where` with each literal as a matcher."""
        return {name: _to_attribute_matcher(value) for name, value in self.attributes.items()}

    @model_validator(mode="after")
    def _names_are_filled(self) -> "SpanCheck":
        for key, name in (("span", self.span), ("after", self.after or "")):
            if _PLACEHOLDER.fullmatch(name):
                raise ValueError(f"'{key}': {_UNFILLED.format(name)}")
        return self

    @model_validator(mode="after")
    def _has_one_assertion(self) -> "SpanCheck":
        keys = [key for key in ASSERTIONS if getattr(self, key) is not None]
        if not keys:
            raise ValueError(f"checks nothing; write one of {', '.join(map(repr, ASSERTIONS))}")
        if len(keys) > 1:
            raise ValueError(f"has {keys[0]!r} and {keys[1]!r}; write an item of the list for each")
        return self


class TraceChecks(Model):
    """Checks of the OpenTelemetry spans that the agent makes for a case or turn."""

    require: dict[NonBlank, Annotated[int, Field(ge=1)]] = {}
    """Name, glob or operation of spans → minimum number of them."""
    checks: list[SpanCheck] = []
    """Further checks; each is a row of the result."""
    settle: Annotated[float, Field(ge=0, le=MAX_SETTLE_S, allow_inf_nan=False)] = 2.0
    """Maximum seconds to wait for spans after the agent's response."""

    @model_validator(mode="after")
    def _checks_something(self) -> "TraceChecks":
        for key in self.model_fields_set & {"require", "checks"}:
            if not getattr(self, key):
                raise ValueError(f"{key!r} is empty and checks nothing; write some, or remove it")
        if not (self.require or self.checks):
            raise ValueError("'trace' checks nothing; write 'require' or 'checks', or remove it")
        return self
