"""Answers as JSON, and back again."""

import sys
from typing import Any

from pydantic import BaseModel, ValidationError

from holodeck.errors import ConfigError
from holodeck.lib.conversation.types import EndConversation

_MODEL = "model"
_END = "end"


def pack_value(value: Any, function: str) -> dict[str, Any]:
    """The JSON of an answer. Raises ConfigError for one that JSON cannot hold."""
    if isinstance(value, EndConversation):
        return {_END: {"farewell": value.farewell, "reason": value.reason}}
    if isinstance(value, BaseModel):
        home = f"{type(value).__module__}:{type(value).__qualname__}"
        return {_MODEL: home, "value": value.model_dump(mode="json")}
    if isinstance(value, list):
        return {"list": [pack_value(one, function) for one in value]}
    if not _is_json(value):
        raise ConfigError(
            function,
            f"returns a {type(value).__name__}, which @scenario.cache cannot keep; return a text, a"
            " message, a list of messages, a pydantic model, or other values that JSON has",
        )
    return {"value": value}


def unpack_value(kept: dict[str, Any]) -> Any:
    """The answer. Raises ValueError if its class is not there or does not take it any more."""
    if _END in kept:
        return EndConversation(**kept[_END])
    if _MODEL in kept:
        return _model(kept[_MODEL], kept["value"])
    if "list" in kept:
        return [unpack_value(one) for one in kept["list"]]
    return kept["value"]


def _model(home: str, value: Any) -> BaseModel:
    """The model; its module must be there already, for a file imports nothing."""
    module, _, path = home.partition(":")
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        raise ValueError(f"it needs {home}, which is not imported")  # noqa: TRY004 - of a file
    try:
        return found.model_validate(value)
    except ValidationError as error:
        raise ValueError(f"{home} does not take it any more: {error.errors()[0]['msg']}") from error


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and _is_json(one) for key, one in value.items())
    if isinstance(value, list):
        return all(_is_json(one) for one in value)
    return value is None or type(value) in (str, int, float, bool)
