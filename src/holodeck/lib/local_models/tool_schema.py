"""JSON schemas as a grammar can hold them: no references, and an end to everything."""

from collections.abc import Mapping
from typing import Any

from holodeck.errors import BackendSessionError

JsonObject = dict[str, Any]

_MOST_ITEMS = 16
_MOST_DEPTH = 12
_UNENFORCED = frozenset({"$defs", "definitions", "$schema", "title", "default", "examples"})


def bounded(schema: Mapping[str, Any], most_characters: int) -> JsonObject:
    """A schema whose strings and arrays end, so that a small model cannot run on for ever.

    References are replaced by what they name; something that contains itself ends in any value
    after some levels. Patterns that llama.cpp cannot hold are left out, as it would do itself but
    not silently. Raises BackendSessionError for bounds that no value meets: llama.cpp would take
    all memory to look for one.
    """
    return _Bounds(schema, most_characters).applied(schema, _MOST_DEPTH)


class _Bounds:
    def __init__(self, root: Mapping[str, Any], most_characters: int) -> None:
        self._root = root
        self._most_characters = most_characters

    def applied(self, schema: Any, depth: int) -> JsonObject:
        if not isinstance(schema, Mapping) or depth == 0:
            return {}
        if "$ref" in schema:
            return self.applied(self._referred(schema["$ref"]), depth - 1)
        found = {key: value for key, value in schema.items() if key not in _UNENFORCED}
        for key in ("anyOf", "oneOf", "prefixItems"):
            if key in found:
                found[key] = [self.applied(one, depth - 1) for one in found[key]]
        for one in found.pop("allOf", []):
            found = {**self.applied(one, depth - 1), **found}
        if "items" in found:
            found["items"] = self.applied(found["items"], depth - 1)
        if "properties" in found:
            properties = found["properties"].items()
            found["properties"] = {key: self.applied(one, depth - 1) for key, one in properties}
            found["additionalProperties"] = False
        return self._limited(found)

    def _limited(self, schema: JsonObject) -> JsonObject:
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if not _holds_pattern(schema.get("pattern", "")):
            del schema["pattern"]
        if "string" in kinds and not {"enum", "const", "pattern", "format"} & set(schema):
            _limit(schema, "minLength", "maxLength", self._most_characters)
        if "array" in kinds:
            _limit(schema, "minItems", "maxItems", _MOST_ITEMS)
        return schema

    def _referred(self, reference: str) -> Any:
        found: Any = self._root
        for part in reference.removeprefix("#").strip("/").split("/"):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found


def _limit(schema: JsonObject, low: str, high: str, most: int) -> None:
    least = schema.get(low, 0)
    if least > schema.get(high, least):
        raise BackendSessionError(
            f"a schema asks for {low} {least} and {high} {schema[high]}, which no value meets"
        )
    schema[high] = max(least, min(schema.get(high, most), most))


def _holds_pattern(pattern: str) -> bool:
    if not pattern:
        return True
    inner = pattern[1:-1]
    anchored = pattern.startswith("^") and pattern.endswith("$")
    return anchored and not any(part in inner for part in ("\\", "^", "$", "(?"))
