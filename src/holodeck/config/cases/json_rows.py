"""Cases in JSON: one document with a list, or a line for each."""

import json
import math
import re
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
        offset, message = _first_fault(text) or (0, str(error))
        line += text.count("\n", 0, offset)
        column = offset - text.rfind("\n", 0, offset)
        raise ConfigError(f"{name}:{line}:{column}", f"cannot be read as JSON: {message}") from None


def _first_fault(text: str) -> tuple[int, str] | None:
    """Where the first key is that is there twice, or value that is not JSON, and what is wrong."""
    keys: list[set[str] | None] = []
    """Of each mapping around the token its keys until then; of a list None."""
    expects_key = False
    for token in _TOKEN.finditer(text):
        word = token[0]
        try:
            if word in "{[":
                keys.append(set() if word == "{" else None)
            elif word in "}]":
                keys.pop()
            elif word[0] == '"' and expects_key and keys and keys[-1] is not None:
                _add_key(json.loads(word), keys[-1])
            elif word not in ",:" and word[0] != '"':
                _DECODER.decode(word)
        except (ValueError, IndexError) as error:
            return token.start(), str(error)
        expects_key = word in "{,"
    return None


def _add_key(key: str, keys: set[str]) -> None:
    if key in keys:
        raise ValueError(f"the key {short(key)} is there twice; remove one")
    keys.add(key)


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys: set[str] = set()
        for key, _ in pairs:
            _add_key(key, keys)
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON; write a number or null")


def _number(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{short(text)} is too large a number")
    return found


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_DECODER = json.JSONDecoder(
    object_pairs_hook=_mapping, parse_constant=_constant, parse_float=_number
)
