"""Cases in JSON: one document with a list, or a line for each."""

import json
import math
from typing import Any

from holodeck.config.cases.rows import JsonText, Rows
from holodeck.config.nodes import short
from holodeck.errors import ConfigError


def json_lines(text: str, name: str) -> Rows:
    """A row for each line that is not blank. Raises ConfigError."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    values = [parsed(line, name, number) for number, line in lines]
    return Rows(name, values, [number for number, _ in lines])


def json_document(text: str, name: str) -> tuple[JsonText, Any]:
    """The document and what it holds. Raises ConfigError."""
    return JsonText(name, text), parsed(text, name)


def parsed(text: str, name: str, line: int = 1) -> Any:
    """The value that JSON text holds, which begins on `line`. Raises ConfigError."""
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        place = f"{name}:{line + error.lineno - 1}:{error.colno}"
        raise ConfigError(place, f"cannot be read as JSON: {error.msg}") from None
    except RecursionError:
        raise ConfigError(f"{name}:{line}:1", "nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{name}:{line}:1", f"cannot be read as JSON: {error}") from None


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {short(twice)} is there twice; remove one")
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON; write a number or null")


def _number(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{short(text)} is too large a number")
    return found


_DECODER = json.JSONDecoder(
    object_pairs_hook=_mapping, parse_constant=_constant, parse_float=_number
)
