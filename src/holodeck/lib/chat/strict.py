"""JSON schemas as endpoints can hold a model to them."""

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]

_UNSPOKEN = frozenset({"title", "default", "examples", "$schema"})


def strict_format(schema: Mapping[str, Any]) -> JsonObject:
    """The `response_format` that asks for a schema: strict where it leaves no key open.

    Strict means that every object names all its keys and requires them; an object that may hold
    any key cannot be asked for so, and the schema goes along as it is.
    """
    strict = _strict(schema)
    wanted = {"name": "answer", "strict": strict is not None, "schema": strict or dict(schema)}
    return {"type": "json_schema", "json_schema": wanted}


def _strict(schema: Any) -> JsonObject | None:
    """The schema with every object closed; None where an object is open."""
    try:
        closed = _closed(schema)
    except _OpenObjectError:
        return None
    return closed if isinstance(closed, dict) and closed.get("type") == "object" else None


class _OpenObjectError(Exception):
    """An object that may hold any key."""


def _closed(value: Any) -> Any:
    if isinstance(value, list):
        return [_closed(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: _closed_part(key, one) for key, one in value.items() if key not in _UNSPOKEN}
    if value.get("type") != "object":
        return found
    if "properties" not in found or value.get("additionalProperties") not in (None, False):
        raise _OpenObjectError
    return {**found, "additionalProperties": False, "required": list(found["properties"])}


def _closed_part(key: str, value: Any) -> Any:
    if key in {"properties", "$defs", "definitions"} and isinstance(value, Mapping):
        return {name: _closed(one) for name, one in value.items()}  # names, not keywords
    return value if key in {"enum", "const", "required"} else _closed(value)
