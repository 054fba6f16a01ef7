"""Assertions of promptfoo as metrics and criteria, where they mean the same."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_SIMILAR = 0.75
"""The threshold of promptfoo's `similar` if none is given."""
_PLAIN_KEYS = {"type", "value", "threshold"}
_IGNORED_KEYS = {
    "metric": "the metric has its own name",
    "weight": "every check must pass",
}
"""Keys of an assertion without which the case is at least as strict."""


@dataclass(frozen=True)
class Translation:
    """What an assertion becomes; `problem` says why it becomes nothing."""

    metric: dict[str, Any] | None = None
    criterion: str | None = None
    problem: str | None = None
    notes: tuple[str, ...] = ()


def translate(written: dict[str, Any]) -> Translation:
    """Return what an assertion means here; placeholders in it are filled in already."""
    kind, value = written.get("type"), written.get("value")
    make = _KINDS.get(kind) if isinstance(kind, str) else None
    unknown = [key for key in written if key not in _PLAIN_KEYS | _IGNORED_KEYS.keys()]
    found: Made = ""
    if make is None:
        found = "has no equivalent"
    elif written.get("weight") == 0:
        found = "has the weight 0, so it decides nothing"
    elif unknown:
        found = f"has {', '.join(map(repr, unknown))}"
    elif isinstance(value, str) and value.startswith("file://"):
        found = f"its value is in {value}"
    else:
        found = make(value, written.get("threshold"))
        if (
            isinstance(found, dict)
            and "criterion" in found
            and written.get("threshold") is not None
        ):
            found = "has a threshold, and criteria pass or fail"
    if isinstance(found, str):
        return Translation(problem=f"the assertion {kind!r} is not imported: {found}")
    notes = [f"{key!r} is left out: {why}" for key, why in _IGNORED_KEYS.items() if key in written]
    if "criterion" in found:
        return Translation(criterion=found["criterion"], notes=tuple(notes))
    return Translation(metric=found, notes=tuple(notes))


Made = dict[str, Any] | str
"""A metric, a criterion, or why there is none."""


def _texts(value: object, *, several: bool) -> list[str] | str:
    """Return the texts of a value, or what is wrong with it."""
    if several and isinstance(value, str):
        value = [one.strip() for one in value.split(",")]
    found = value if several else [value]
    if not isinstance(found, list) or not found:
        return "no text is given"
    if not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in found):
        return "the value is no text"
    texts = [str(one) for one in found]
    return texts if all(one.strip() for one in texts) else "a text is empty"


def _text_metric(name: str, *, several: bool = False, **options: Any) -> Callable[..., Made]:
    def make(value: object, _threshold: object) -> Made:
        texts = _texts(value, several=several)
        if isinstance(texts, str):
            return texts
        expected = {"values": texts} if several else {"value": texts[0]}
        return {"metric": name, **expected, **options}

    return make


def _pattern(prefix: str, *, is_text: bool) -> Callable[..., Made]:
    def make(value: object, _threshold: object) -> Made:
        if not isinstance(value, str) or not value.strip():
            return "no text is given"
        try:
            re.compile(value if not is_text else "")
        except re.error as error:
            return f"the pattern is none of Python's: {error}"
        return {"metric": "regex", "pattern": prefix + (re.escape(value) if is_text else value)}

    return make


def _json_schema(value: object, _threshold: object) -> Made:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return "the schema cannot be read as JSON"
    schema = {} if value is None else value
    if not isinstance(schema, dict):
        return "the schema is no mapping"
    return {"metric": "json_schema", "schema": schema}


def _similar(value: object, threshold: object) -> Made:
    texts = _texts(value, several=isinstance(value, list))
    if isinstance(texts, str):
        return texts
    reached = _SIMILAR if threshold is None else threshold
    if not isinstance(reached, int | float) or not 0 < reached <= 1:
        return f"the threshold {reached!r} is not between 0 and 1"
    return {"metric": "semantic_similarity", "values": texts, "threshold": reached}


def _latency(_value: object, threshold: object) -> Made:
    if not isinstance(threshold, int | float) or threshold < 1:
        return "no threshold in milliseconds is given"
    return {"metric": "latency", "max_ms": int(threshold)}


def _rubric(value: object, _threshold: object) -> Made:
    if not isinstance(value, str) or not value.strip():
        return "the rubric is no text"
    return {"criterion": value.strip()}


_KINDS: dict[str, Callable[..., Made]] = {
    "equals": _text_metric("exact_match", strip=False),
    "contains": _text_metric("contains"),
    "contains-all": _text_metric("contains", several=True),
    "contains-any": _text_metric("contains", several=True, match="any"),
    "icontains": _text_metric("contains", ignore_case=True),
    "icontains-all": _text_metric("contains", several=True, ignore_case=True),
    "icontains-any": _text_metric("contains", several=True, match="any", ignore_case=True),
    "not-contains": _text_metric("not_contains"),
    "not-contains-any": _text_metric("not_contains", several=True),
    "not-icontains": _text_metric("not_contains", ignore_case=True),
    "not-icontains-any": _text_metric("not_contains", several=True, ignore_case=True),
    "starts-with": _pattern(r"\A", is_text=True),
    "regex": _pattern("", is_text=False),
    "is-json": _json_schema,
    "similar": _similar,
    "latency": _latency,
    "llm-rubric": _rubric,
    "model-graded-closedqa": _rubric,
}
