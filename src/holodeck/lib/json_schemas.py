"""JSON Schemas as people write them: a keyword that would be ignored is refused."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.suggestions import did_you_mean

MAX_DEPTH = 50

_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SINGLE = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems")
_VALUES = (
    "type", "enum", "const", "required", "dependentRequired", "format", "pattern", "multipleOf",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
    "minItems", "maxItems", "uniqueItems", "minContains", "maxContains", "minProperties",
    "maxProperties",
)  # fmt: skip
_NOTES = (
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
    "$schema", "$id", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor", "$vocabulary", "$comment",
)  # fmt: skip
DRAFT_2020_12 = (*_NAMED, *_SINGLE, *_SEVERAL, *_VALUES, *_NOTES)
"""The keywords that are checked, or that say nothing about what is valid."""
_INSTEAD = {
    "dependencies": "write 'dependentRequired' or 'dependentSchemas'",
    "additionalItems": "write 'prefixItems' and 'items'",
    "nullable": "write 'type: [string, \"null\"]', say",
    "contentEncoding": "write a 'pattern'",
    "contentMediaType": "write a 'pattern'",
    "contentSchema": "write a 'pattern'",
}
"""Keywords of other drafts and of OpenAPI, and those that nothing checks."""
_NEEDS = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}
"""A keyword → the one without which it means nothing."""
_KEYWORDS_AS_NAMES = frozenset(f"properties.{keyword}" for keyword in _SINGLE)


def check_keywords(
    schema: Any,
    where: str,
    known: Collection[str] = DRAFT_2020_12,
    formats: Collection[str] | None = None,
    depth: int = 0,
) -> None:
    """Raise ConfigError for what would be ignored in a schema and the schemas in it.

    That is a keyword that is not `known`, and a format that is not one of `formats`.
    """
    if not isinstance(schema, Mapping):
        return
    if depth > MAX_DEPTH:
        raise ConfigError(where, f"nested more than {MAX_DEPTH} levels deep")
    for keyword in map(str, schema):
        is_note = keyword.startswith("x-") and known is DRAFT_2020_12
        if keyword not in known and not is_note:
            raise ConfigError(where, _unknown(keyword, known, schema))
        needed = _NEEDS.get(keyword)
        if needed is not None and needed not in schema:
            raise ConfigError(where, f"{keyword!r} means nothing without {needed!r}")
    _check_format(schema, where, formats)
    for name, below in schemas_in(schema):
        if isinstance(below, bool) and name in _KEYWORDS_AS_NAMES:
            raise ConfigError(f"{where}.{name}", "is the name of a property here; indent it less")
        check_keywords(below, f"{where}.{name}", known, formats, depth + 1)


def schemas_in(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas directly in a schema, with their paths."""
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, Mapping):
            yield from ((f"{keyword}.{name}", one) for name, one in value.items())
        elif keyword in _SINGLE:
            yield keyword, value
        elif keyword in _SEVERAL and isinstance(value, list):
            yield from ((f"{keyword}[{index}]", one) for index, one in enumerate(value))


def _check_format(schema: Mapping[str, Any], where: str, formats: Collection[str] | None) -> None:
    wanted = schema.get("format")
    if formats is not None and isinstance(wanted, str) and wanted not in formats:
        raise ConfigError(
            f"{where}.format",
            f"the format {wanted!r} is not checked; write a 'pattern', or one of"
            f" {', '.join(sorted(formats))}",
        )


def _unknown(keyword: str, known: Collection[str], schema: Mapping[str, Any]) -> str:
    if isinstance(schema.get("schema"), Mapping) or isinstance(schema.get("json_schema"), Mapping):
        inner = "schema" if "schema" in schema else "json_schema"
        return (
            f"{keyword!r} belongs to a model's API, not to the schema; write what {inner!r} holds"
        )
    if keyword in _INSTEAD:
        return f"the keyword {keyword!r} is not supported; {_INSTEAD[keyword]}"
    hint = did_you_mean(keyword, known, ";")
    return f"the keyword {keyword!r} is not supported{hint} supported: {', '.join(known)}"
