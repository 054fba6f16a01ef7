"""Expand a case with `parameters` into several: `{{name}}` becomes each value."""

import typing
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from math import prod
from typing import Any, Literal

from pydantic import BaseModel

from holodeck.config.yaml.nodes import quote
from holodeck.config.yaml.source import Origin, format_key_path
from holodeck.errors import ConfigError
from holodeck.models.suite import WrittenCase
from holodeck.models.test_case import LIKE_PLACEHOLDER, PLACEHOLDER, TurnModel

Kind = Literal["text", "list", "scalar", "mapping"]


def value_kind(key: str) -> Kind:
    """Return the type of a key's value; a nested key (`context.user`) holds text."""
    if "." in key:
        return "text"
    kinds = set(_kinds_in(WrittenCase.model_fields[key].annotation))
    order: tuple[Kind, ...] = ("list", "mapping", "text", "scalar")
    return next((one for one in order if one in kinds), "scalar")


def case_keys() -> list[str]:
    """Return the keys that a test case may have."""
    return list(WrittenCase.model_fields)


def text_keys() -> frozenset[str]:
    """Return the keys of cases and turns whose value is text or a list of text."""
    fields = {**WrittenCase.model_fields, **TurnModel.model_fields}
    plain = {name for name, field in fields.items() if set(_kinds_in(field.annotation)) == {"text"}}
    lists = {name for name, field in fields.items() if _is_list_of_text(field.annotation)}
    return frozenset(plain | lists)


def _is_list_of_text(annotation: Any) -> bool:
    kinds = set(_kinds_in(annotation))
    return kinds == {"list", "text"}


def _kinds_in(annotation: Any) -> Iterator[Kind]:
    """Yield the types in an annotation, including those of a list's items."""
    origin = typing.get_origin(annotation) or annotation
    if origin is list:
        yield "list"
        for part in typing.get_args(annotation):
            yield from _kinds_in(part)
    elif origin is dict or _is_model(origin):
        yield "mapping"
    elif origin is str:
        yield "text"
    elif origin in (int, float, bool):
        yield "scalar"
    elif origin is not Literal:
        for part in typing.get_args(annotation):
            yield from _kinds_in(part)


def _is_model(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, BaseModel)


MOST_CASES = 10_000
"""Maximum for one case, because the product of several parameters grows fast."""
NAMED = ("name", "id")
"""Keys that identify a case."""
_MORE_TEXT = frozenset({"value", "values", "pattern", "content"})
_OWN_NAMES = frozenset({"args", "context"})
Value = str | int | float | bool


def expand_parameters(case: Mapping[str, Any], origin: Origin) -> Iterator[dict[str, Any]]:
    """Yield a case for each set of `parameters`, or the case itself without parameters.

    Raises ConfigError for parameters that are invalid, missing or unused.
    """
    rest = {key: value for key, value in case.items() if key != "parameters"}
    if case.get("parameters") is None:
        yield rest
        return
    choices = _choices(case["parameters"], origin.below("parameters"))
    _check_use(rest, choices[0], origin)
    for values in choices:
        yield _fill_case(rest, values)


def _choices(written: Any, origin: Origin) -> list[dict[str, Value]]:
    """Return the values of the parameters for each case."""
    if isinstance(written, dict) and written:
        choices = _product(written, origin)
    elif isinstance(written, list) and written:
        choices = [_check_values(one, origin.below(index)) for index, one in enumerate(written)]
    else:
        raise _error(origin, "write names with lists of values, or a list of mappings")
    seen: set[str] = set()
    for index, choice in enumerate(choices):
        if choice.keys() != choices[0].keys():
            names = ", ".join(choices[0])
            raise _error(
                origin.below(index), f"has different names than the first item, which has {names}"
            )
        words = _case_label(choice)
        if words in seen:
            raise _error(origin, f"duplicate {words}; remove one")
        seen.add(words)
    return choices


def _product(written: Mapping[str, Any], origin: Origin) -> list[dict[str, Value]]:
    for name, values in written.items():
        if not isinstance(values, list) or not values:
            example = "a, b" if isinstance(values, list | dict) or values is None else values
            raise _error(origin.below(name), f"expected a list of values, such as [{example}]")
    count = prod(map(len, written.values()))
    if count > MOST_CASES:
        raise _error(origin, f"these make {count:,} cases; at most {MOST_CASES:,} are allowed")
    combined = product(*written.values())
    return [_check_values(dict(zip(written, one, strict=True)), origin) for one in combined]


def _check_values(values: Any, origin: Origin) -> dict[str, Value]:
    if not isinstance(values, dict) or not values:
        raise _error(origin, "expected a mapping of names to values")
    for name, value in values.items():
        if not PLACEHOLDER.fullmatch(f"{{{{{name}}}}}"):
            raise _error(origin, f"{quote(name)} is not a valid name; use letters, digits and _")
        if not isinstance(value, str | int | float | bool):
            raise _error(origin, f"the value of {name!r} must be text, a number, true or false")
    return values


def _check_use(case: Any, values: Mapping[str, Value], origin: Origin) -> None:
    used = dict(_uses(case, origin))
    for name, use in used.items():
        if name not in values:
            raise _error(use, f"unknown parameter {{{{{name}}}}}; known: {', '.join(values)}")
    for name in values:
        if name not in used:
            at = origin.below("parameters", name)
            raise _error(at, f"is not used; write {{{{{name}}}}} where it belongs, or remove it")


def _uses(value: Any, origin: Origin) -> Iterator[tuple[str, Origin]]:
    """Yield the name of each placeholder, and where it is."""
    if isinstance(value, dict):
        for key, one in value.items():
            if PLACEHOLDER.search(key):
                raise _error(origin.below(key), "placeholders are allowed in values, not in keys")
            yield from _uses(one, origin.below(key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _uses(one, origin.below(index))
    elif isinstance(value, str):
        _check_placeholders(value, origin)
        for match in PLACEHOLDER.finditer(value):
            yield match[1], origin


def _check_placeholders(text: str, origin: Origin) -> None:
    """Raise ConfigError for text such as `{{user.name}}`, which would go to the agent unfilled."""
    for match in LIKE_PLACEHOLDER.finditer(text):
        if not PLACEHOLDER.fullmatch(match[0]):
            raise _error(
                origin,
                f"invalid placeholder {quote(match[0])}; write {{{{name}}}} with letters, digits"
                " and _, or make text with such braces the value of a parameter",
            )


def _fill_case(case: Mapping[str, Any], values: Mapping[str, Value]) -> dict[str, Any]:
    filled: dict[str, Any] = _fill(case, values, _text_keys(), keeps_type=True)
    for key in NAMED:
        written = case.get(key)
        if isinstance(written, str) and not PLACEHOLDER.search(written):
            filled[key] = f"{written}[{_case_label(values)}]"
    return filled


def _fill(
    value: Any, values: Mapping[str, Value], texts: frozenset[str], *, keeps_type: bool
) -> Any:
    """Return the value with its placeholders filled in.

    A text that is only a placeholder becomes the value itself, such as a number, except under keys
    that hold text (`texts`).
    """
    if isinstance(value, dict):
        return {
            key: _fill(one, values, _below(key, texts), keeps_type=key not in texts)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [_fill(one, values, texts, keeps_type=keeps_type) for one in value]
    if not isinstance(value, str):
        return value
    whole = PLACEHOLDER.fullmatch(value) if keeps_type else None
    if whole is not None:
        return values[whole[1]]
    return PLACEHOLDER.sub(lambda match: _as_text(values[match[1]]), value)


def _below(key: str, texts: frozenset[str]) -> frozenset[str]:
    """Return the keys that hold text in the mapping under `key`; none if the user names them."""
    return frozenset() if key in _OWN_NAMES else texts


@cache
def _text_keys() -> frozenset[str]:
    return text_keys() | _MORE_TEXT


def _as_text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _case_label(values: Mapping[str, Value]) -> str:
    """Return what distinguishes a case from the others: `city=Rome,unit=C`."""
    return ",".join(f"{name}={' '.join(_as_text(value).split())}" for name, value in values.items())


def _error(origin: Origin, message: str) -> ConfigError:
    return ConfigError(origin.location, f"{format_key_path(origin.path)}: {message}")
