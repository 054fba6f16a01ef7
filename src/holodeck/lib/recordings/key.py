"""What identifies a request: its whole body, without what differs at random."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import count, groupby
from typing import Any

from holodeck.lib.support.patterns import compile_pattern, replace
from holodeck.models.recordings import IgnoreRule

Json = Any
_IDS = frozenset({"id", "call_id", "tool_call_id", "tool_use_id"})
"""Fields that hold the id of a call."""
_CALLS = {
    "function": "id",
    "tool_use": "id",
    "function_call": "call_id",
    "custom_tool_call": "call_id",
}
"""The types of objects that are calls of tools → the field with the id."""
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\*)\]")
_PATTERN_S = 5.0
"""Limit for the search of a pattern in a text."""


def canonical(request: Mapping[str, Json], rules: Sequence[IgnoreRule] = ()) -> dict[str, Json]:
    """Return a request as recordings compare it; its `body` is a JSON value.

    Ids of tool calls are replaced by the order of their appearance, results of tools stand in the
    order of their calls, and what `rules` ignore is replaced by its name. Nothing else changes.
    Raises TimeoutError for a pattern that takes too long.
    """
    patterns = [(_searched(rule.pattern), rule) for rule in rules if rule.pattern is not None]
    body = _Canonical(patterns).of(request.get("body"))
    for rule in rules:
        if rule.path is not None:
            _replace_at(body, _steps_of(rule.path), rule.replacement)
    return {**request, "body": body}


def key_of(request: Mapping[str, Json]) -> str:
    """Return the hash of a canonical request."""
    text = json.dumps(request, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Canonical:
    """Copies a body; knows the calls of tools that came before."""

    def __init__(self, patterns: Sequence[tuple[Any, IgnoreRule]]) -> None:
        self._patterns = patterns
        self._numbers: dict[str, int] = {}
        """By the id of a call."""
        self._names: dict[str, int] = {}
        """When a tool was called last, by its name, for results without ids."""
        self._counter = count()

    def of(self, value: Json) -> Json:
        if isinstance(value, dict):
            return self._of_object(value)
        if isinstance(value, list):
            return [self.of(item) for item in self._in_order(value)]
        if isinstance(value, str):
            for pattern, rule in self._patterns:
                value = replace(pattern, rule.replacement, value, _PATTERN_S)
        return value

    def _of_object(self, value: dict[str, Json]) -> dict[str, Json]:
        kind = value.get("type")
        field = _CALLS.get(kind) if isinstance(kind, str) else "id" if "function" in value else None
        if field is not None and isinstance(value.get(field), str):
            self._number(value[field])
        function = value.get("function", value)
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            self._names[function["name"]] = next(self._counter)
        return {
            key: f"call {self._numbers[item]}"
            if key in _IDS and isinstance(item, str) and item in self._numbers
            else self.of(item)
            for key, item in value.items()
        }

    def _number(self, call_id: str) -> int:
        return self._numbers.setdefault(call_id, len(self._numbers) + 1)

    def _in_order(self, items: list[Json]) -> Iterator[Json]:
        """Yield the items of a list; adjacent results of tools in the order of their calls."""
        for is_result, group in groupby(items, key=lambda item: _result_of(item) is not None):
            if not is_result:
                yield from group
                continue
            results = list(group)
            if len({_result_of(result) for result in results}) == len(results):
                results.sort(key=self._order)
            for result in results:
                self._number(_result_of(result) or "")
                yield result

    def _order(self, result: Json) -> tuple[int, str]:
        """Return where a result stands; that of an unknown call by the call's id."""
        call, unknown = _result_of(result) or "", len(self._numbers) + len(self._names)
        return self._numbers.get(call, self._names.get(call, unknown)), call


def _result_of(item: Json) -> str | None:
    """Return the id of the call whose result an object is, else the tool's name; None if none."""
    if not isinstance(item, dict):
        return None
    kind = str(item.get("type") or "")
    if item.get("role") == "tool":
        call = item.get("tool_call_id") or item.get("tool_name") or item.get("name")
    elif kind == "tool_result":
        call = item.get("tool_use_id")
    else:
        call = item.get("call_id") if kind.endswith("_output") else None
    return call if isinstance(call, str) else None


@cache
def _searched(pattern: str) -> Any:
    return compile_pattern(pattern)


@cache
def _steps_of(path: str) -> tuple[str, ...]:
    return tuple(name or index for name, index in _STEP.findall(path))


def _replace_at(value: Json, steps: Sequence[str], replacement: str) -> None:
    """Replace what is at a path in a value, if it is there."""
    step, *rest = steps
    keys: Sequence[Any] = ()
    if isinstance(value, list):
        indexes = range(len(value))
        keys = indexes if step == "*" else [int(step)] if step.isdigit() else []
        keys = [key for key in keys if key in indexes]
    elif isinstance(value, dict) and step in value:
        keys = [step]
    for key in keys:
        if rest:
            _replace_at(value[key], rest, replacement)
        else:
            value[key] = replacement
