"""Compare the arguments and results of tool calls with what a case expects."""

import json
import math
import re
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.support.patterns import compile_pattern, find
from holodeck.models.cases.matchers import ArgMatcher, NumberMatcher, ResultMatcher

MATCH_SECONDS = 1.0


def matches(matcher: ArgMatcher, value: Any) -> bool:
    """Return whether a value matches. Raises EvaluationError for a pattern that is too slow."""
    if isinstance(matcher, ResultMatcher) and matcher.contains is not None:
        return matcher.contains in _text(value)
    if matcher.regex is not None:
        return _regex_matches(matcher.regex, value)
    if matcher.number is not None:
        return _number_matches(matcher.number, value)
    if matcher.fuzzy is not None:
        return _normalize(matcher.fuzzy) == _normalize(value)
    return equal_json(matcher.equals, value)


def _text(value: Any) -> str:
    """Return the value as text; what is not text, as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _regex_matches(pattern: str, value: Any) -> bool:
    text = value if isinstance(value, str) else str(value)
    try:
        return find(compile_pattern(pattern), text, MATCH_SECONDS, whole=True) is not None
    except TimeoutError as error:
        raise EvaluationError(
            f"the pattern {pattern!r} takes longer than {MATCH_SECONDS:g} s; simplify it"
        ) from error


def _number_matches(matcher: NumberMatcher, value: Any) -> bool:
    number = _number(value)
    return number is not None and math.isclose(
        number,
        matcher.value,
        rel_tol=matcher.relative_tolerance,
        abs_tol=matcher.absolute_tolerance,
    )


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _normalize(value: Any) -> str | float:
    """Return the value without differences in case, spaces, separators and percent signs."""
    text = re.sub(r"[\s,_]", "", str(value)).casefold()
    number = _number(text.removesuffix("%"))
    if number is None:
        return text
    return round(number / 100 if text.endswith("%") else number, 9)


def equal_json(expected: Any, value: Any) -> bool:
    """Return whether JSON values are equal: 1 equals 1.0, but true does not equal 1."""
    if isinstance(expected, bool) or isinstance(value, bool):
        return expected is value
    if isinstance(expected, dict) and isinstance(value, dict):
        same_keys = expected.keys() == value.keys()
        return same_keys and all(equal_json(expected[key], value[key]) for key in expected)
    if isinstance(expected, list) and isinstance(value, list):
        return len(expected) == len(value) and all(map(equal_json, expected, value))
    are_numbers = isinstance(expected, int | float) and isinstance(value, int | float)
    return (are_numbers or type(expected) is type(value)) and bool(expected == value)


def describe_matcher(matcher: ArgMatcher) -> str:
    """Return what a value must be, as rows of checks show it."""
    if isinstance(matcher, ResultMatcher) and matcher.contains is not None:
        return f"*{matcher.contains}*"
    if matcher.regex is not None:
        return f"/{matcher.regex}/"
    if matcher.number is not None:
        return f"{matcher.number.value:g}"
    if matcher.fuzzy is not None:
        return f"≈{matcher.fuzzy!r}"
    return short(matcher.equals)


def short(value: Any) -> str:
    """Return the value as Python writes it, in at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
