"""Values of recorded responses as JSON."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ValidationError

from holodeck.errors import ConfigError
from holodeck.lib.conversation.types import EndConversation

_COLLECTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}


def pack(value: Any, function: str) -> dict[str, Any]:
    """Return a response as JSON. Raises ConfigError if it cannot be recorded.

    Args:
        value: The response.
        function: The function that returned it, for the error.
    """
    if isinstance(value, EndConversation):
        return {"end": {"farewell": value.farewell, "reason": value.reason}}
    if isinstance(value, BaseModel):
        model = f"{type(value).__module__}:{type(value).__qualname__}"
        return {"model": model, "value": value.model_dump(mode="json")}
    if not isinstance(value, list) and _is_json(value):
        return {"value": value}
    if type(value) is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    return _pack_collection(value, function)


def _pack_collection(value: Any, function: str) -> dict[str, Any]:
    kind = "list" if isinstance(value, list) else type(value).__name__
    if kind == "list" or _COLLECTIONS.get(kind) is type(value):
        return {kind: [pack(item, function) for item in value]}
    if type(value) is dict:
        return {"items": [[pack(part, function) for part in item] for item in value.items()]}
    raise ConfigError(
        function,
        f"returns a {type(value).__name__}, which @scenario.cache cannot record; return a text, a"
        " number, a message, a pydantic model, bytes or a collection of these",
    )


def unpack(packed: dict[str, Any]) -> Any:
    """Return the response.

    Raises ValueError if its class is missing or has changed, or for what earlier versions wrote.
    """
    if "value" in packed and "model" not in packed:
        return packed["value"]
    if "model" in packed:
        return _unpack_model(packed["model"], packed["value"])
    if "end" in packed:
        return EndConversation(**packed["end"])
    if "bytes" in packed:
        return base64.b64decode(packed["bytes"], validate=True)
    if "pickle" in packed:
        raise ValueError("it is a pickle of an earlier version, which is no longer loaded")
    return _unpack_collection(packed)


def _unpack_collection(packed: dict[str, Any]) -> Any:
    if "items" in packed:
        return dict([unpack(part) for part in item] for item in packed["items"])
    [(kind, values)] = packed.items()
    return _COLLECTIONS[kind]([unpack(value) for value in values])


def _unpack_model(name: str, value: Any) -> Any:
    module, _, path = name.partition(":")
    # Only from modules that are imported already: reading a file must not run code.
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        raise ValueError(f"it needs {name}, which is not imported")  # noqa: TRY004 - of a file
    try:
        return found.model_validate(value)
    except ValidationError as error:
        raise ValueError(f"it no longer fits {name}: {error.errors()[0]['msg']}") from error


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and _is_json(one) for key, one in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or type(value) in (str, int, float, bool)
