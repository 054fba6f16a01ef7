"""JSON whose objects have each key once: of two values, a parser silently drops one."""

import json
from typing import Any


class DuplicateKey(ValueError):
    """An object has a key twice; the message names it."""


def load_json(text: str | bytes | bytearray) -> Any:
    """Return the value of a JSON text. Raises ValueError, DuplicateKey and RecursionError."""
    return json.loads(text, object_pairs_hook=unique_keys)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these keys and values, for `object_pairs_hook`. Raises DuplicateKey."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise DuplicateKey(f"duplicate key {next(key for key in keys if keys.count(key) > 1)!r}")
    return found
