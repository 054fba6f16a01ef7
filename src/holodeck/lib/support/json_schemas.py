"""Validates the keywords of JSON Schemas: a keyword that would be ignored is an error."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.support.text import did_you_mean

MAX_DEPTH = 50


def object_schema(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object that has these properties, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


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
"""The keywords that are validated, and the annotations."""
_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
_ALTERNATIVES = {
    "dependencies": "write 'dependentRequired' or 'dependentSchemas'",
    "additionalItems": "write 'prefixItems' and 'items'",
    "nullable": "write 'type: [string, \"null\"]'",
    "contentEncoding": "write a 'pattern'",
    "contentMediaType": "write a 'pattern'",
    "contentSchema": "write a 'pattern'",
}
"""Keywords of other drafts and of OpenAPI, or without validation, and what to write instead."""
_REQUIRES = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}
"""Keywords that require another keyword."""
_KEYWORDS_AS_NAMES = frozenset(f"properties.{keyword}" for keyword in _SINGLE)


def check_keywords(
    schema: Any,
    location: str,
    formats: Collection[str] | None = None,
    depth: int = 0,
) -> None:
    """Raise ConfigError for parts of a schema and its subschemas that would be ignored.

    These are keywords that draft 2020-12 does not have, and formats that are not in `formats`.
    """
    if not isinstance(schema, Mapping):
        return
    if depth > MAX_DEPTH:
        raise ConfigError(location, f"nested more than {MAX_DEPTH} levels deep")
    for keyword in map(str, schema):
        annotated = keyword.removeprefix("x-")
        if annotated != keyword and annotated in DRAFT_2020_12:
            raise ConfigError(
                location,
                f"{keyword!r} is an annotation and checks nothing; write {annotated!r}, or '#'"
                " before the line to leave it out",
            )
        if keyword not in DRAFT_2020_12 and annotated == keyword:
            raise ConfigError(location, _unknown(keyword, schema))
        required = _REQUIRES.get(keyword)
        if required is not None and required not in schema:
            raise ConfigError(location, f"{keyword!r} has no effect without {required!r}")
    _check_values(schema, location)
    _check_format(schema, location, formats)
    for name, below in schemas_in(schema):
        if isinstance(below, bool) and name in _KEYWORDS_AS_NAMES:
            raise ConfigError(
                f"{location}.{name}", "is the name of a property here; indent it less"
            )
        check_keywords(below, f"{location}.{name}", formats, depth + 1)


def schemas_in(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the direct subschemas of a schema, with their paths."""
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, Mapping):
            yield from ((f"{keyword}.{name}", subschema) for name, subschema in value.items())
        elif keyword in _SINGLE:
            yield keyword, value
        elif keyword in _SEVERAL and isinstance(value, list):
            yield from ((f"{keyword}[{index}]", subschema) for index, subschema in enumerate(value))


def _check_values(schema: Mapping[str, Any], location: str) -> None:
    """Raise ConfigError for unknown types, and for values of which there are none."""
    types = schema.get("type", [])
    for name in types if isinstance(types, list) else [types]:
        if name not in _TYPES:
            expected = ", ".join(map(repr, _TYPES))
            raise ConfigError(f"{location}.type", f"found {name!r}; expected {expected}")
    if schema.get("enum") == []:
        raise ConfigError(f"{location}.enum", "is empty, so nothing is valid; write the values")


def _check_format(
    schema: Mapping[str, Any], location: str, formats: Collection[str] | None
) -> None:
    name = schema.get("format")
    if formats is not None and isinstance(name, str) and name not in formats:
        raise ConfigError(
            f"{location}.format",
            f"the format {name!r} is not checked; write a 'pattern', or one of"
            f" {', '.join(sorted(formats))}",
        )


def _unknown(keyword: str, schema: Mapping[str, Any]) -> str:
    if isinstance(schema.get("schema"), Mapping) or isinstance(schema.get("json_schema"), Mapping):
        inner = "schema" if "schema" in schema else "json_schema"
        return (
            f"{keyword!r} belongs to a model's API, not to the schema; write what {inner!r} holds"
        )
    if keyword in _ALTERNATIVES:
        return f"the keyword {keyword!r} is not supported; {_ALTERNATIVES[keyword]}"
    hint = did_you_mean(keyword, DRAFT_2020_12, ";")
    return f"the keyword {keyword!r} is not supported{hint} supported: {', '.join(DRAFT_2020_12)}"
