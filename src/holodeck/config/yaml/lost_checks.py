"""Find checks that would be silently ignored: keys without a value, and keys in a wrong mapping.

A list whose items are all commented out is null, which means "not checked". A key that is indented
too far becomes part of `context` or `metadata`, which accept any key.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from holodeck.config.yaml.source import KeyPath, Locations, format_key_path
from holodeck.config.yaml.validation_errors import MAX_PROBLEMS, limit_lines
from holodeck.errors import ConfigError
from holodeck.lib.support.text import quote
from holodeck.models.agent import Agent
from holodeck.models.test_case import TestCaseModel

NO_VALUE = "has no value; write one, or remove the key"
_NEVER_NULL = frozenset(
    {
        "after", "agent", "checks", "config", "count", "criteria", "default_scorers", "error",
        "evaluations", "expected_output", "expected_tools", "forbidden_tools", "ground_truth",
        "handoffs", "max", "max_tool_calls", "max_turns_to_done", "min", "require", "result",
        "retrieval_context", "scenarios", "scorers", "script", "simulate", "status", "sum",
        "test_cases", "threshold", "trace", "turns", "value", "values",
    }
)  # fmt: skip
"""Keys that must have a value, because without them less is checked."""
_CASE_KEYS = frozenset(
    {
        "evaluations", "expected_output", "expected_tool_args", "expected_tools", "forbidden_tools",
        "ground_truth", "max_tool_calls", "max_turns_to_done", "min_pass", "min_pass_rate",
        "no_repeated_calls", "only_expected_tools", "scorers", "timeout_seconds", "tool_order",
    }
)  # fmt: skip
"""Keys that are a mistake anywhere in a free mapping."""
_AMBIGUOUS_KEYS = frozenset(
    {"criteria", "handoffs", "repeat", "retrieval_context", "script", "simulate", "trace", "turns"}
)
"""Keys that a context may have too: a mistake if the value is valid for the key of a case."""

LostCheck = tuple[KeyPath, str]
"""The path of a key, and what is wrong with it."""


def lost_checks(agent: Agent) -> Iterator[LostCheck]:
    """Yield the checks of an agent.yaml and its cases that would be ignored."""
    for key in ("evaluations", "test_cases", "execution"):
        if key in agent.model_fields_set and getattr(agent, key) is None:
            yield (key,), NO_VALUE
    if agent.evaluations is not None:
        yield from keys_without_value(agent.evaluations, ("evaluations",))
    for index, case in enumerate(agent.test_cases or ()):
        path = ("test_cases", index)
        yield from keys_without_value(case, path)
        yield from misplaced_keys(case.context or {}, (*path, "context"))


def keys_without_value(written: BaseModel, path: KeyPath) -> Iterator[LostCheck]:
    """Yield the keys of a model, and of models in it, that are written without a value."""
    for key in written.model_fields_set:
        value = getattr(written, key, None)
        if value is None:
            if key in _NEVER_NULL:
                yield (*path, key), NO_VALUE
        elif isinstance(value, BaseModel):
            yield from keys_without_value(value, (*path, key))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from keys_without_value(item, (*path, key, index))


def misplaced_keys(free: Mapping[str, Any], path: KeyPath) -> Iterator[LostCheck]:
    """Yield the keys of a case in a mapping that accepts any key."""
    for key, value in free.items():
        if key in _AMBIGUOUS_KEYS:
            annotation = TestCaseModel.model_fields[key].annotation
            with suppress(ValidationError):
                TypeAdapter(annotation).validate_python(value, strict=True)
                yield (*path, key), _misplaced_message(key, str(path[-1]))
    for at, key in _case_keys_in(free, path):
        yield at, _misplaced_message(key, str(path[-1]))


def _case_keys_in(free: Mapping[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    for key, value in free.items():
        if key in _CASE_KEYS:
            yield (*path, key), key
        elif isinstance(value, dict):
            yield from _case_keys_in(value, (*path, key))


def _misplaced_message(key: str, mapping: str) -> str:
    return f"{quote(key)} has no effect in {mapping!r}; it is a key of the case: indent it less"


def describe_lost_check(at: KeyPath, why: str, locations: Locations) -> str:
    """Return a line about an ignored check, which begins with the location of its key."""
    origin = locations.origin(at)
    return f"{origin.key_location}: {format_key_path(origin.path)}: {why}"


def raise_on_lost_checks(lost: Iterable[LostCheck], locations: Locations) -> None:
    """Raise ConfigError with a line for each ignored check."""
    found = {describe_lost_check(at, why, locations): at for at, why in lost}
    if found:
        lines, more = list(found)[:MAX_PROBLEMS], max(0, len(found) - MAX_PROBLEMS)
        location = locations.origin(found[lines[0]]).key_location
        text = "\n".join(limit_lines(lines, more)).removeprefix(f"{location}: ")
        raise ConfigError(location, text)
