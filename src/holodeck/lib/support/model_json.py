"""Models as JSON that every program reads, whatever their values are."""

import json
from contextlib import suppress
from math import isfinite
from typing import Any

from pydantic import BaseModel

_MAX_DEPTH = 100
_REPLACEMENT = "\ufffd"


def model_json(
    model: BaseModel, *, indent: int | None = None, exclude_defaults: bool = False
) -> str:
    """Return a model as JSON; what JSON has no form for is escaped, null or text.

    Values that are nested too deeply to be read back are cut off.
    """
    with suppress(ValueError, RecursionError):  # a lone surrogate; a value that contains itself
        text = model.model_dump_json(indent=indent, exclude_defaults=exclude_defaults)
        if _REPLACEMENT not in text:  # pydantic replaces a lone surrogate in a key
            return text
    values = _to_json(model, _MAX_DEPTH, exclude_defaults=exclude_defaults)
    return json.dumps(values, indent=indent, default=str)


def _to_json(value: Any, depth: int, *, exclude_defaults: bool) -> Any:
    if depth == 0 and isinstance(value, BaseModel | dict | list | tuple):
        return "(nested too deep to be recorded)"
    if isinstance(value, BaseModel):
        fields = {
            name: getattr(value, name)
            for name, field in type(value).model_fields.items()
            if not (exclude_defaults and getattr(value, name) == field.get_default())
        }
        return _to_json(fields, depth, exclude_defaults=exclude_defaults)
    if isinstance(value, dict):
        return {
            str(key): _to_json(item, depth - 1, exclude_defaults=exclude_defaults)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_to_json(item, depth - 1, exclude_defaults=exclude_defaults) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
