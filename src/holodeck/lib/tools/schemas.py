"""JSON Schemas as models of every provider understand them."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema


class UntitledSchema(GenerateJsonSchema):
    """Leaves out the titles, which only repeat the names."""

    def field_title_should_be_set(self, schema: CoreSchema | Any) -> bool:  # noqa: ARG002
        return False


def without_references(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with every `$ref` replaced by what it stands for.

    Where a type contains itself, the inner one may be anything.
    """
    defined = schema.get("$defs", {})
    return {key: _expanded(value, defined, ()) for key, value in schema.items() if key != "$defs"}


def _expanded(node: Any, defined: dict[str, Any], within: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_expanded(item, defined, within) for item in node]
    if not isinstance(node, dict):
        return node
    rest = {k: _expanded(v, defined, within) for k, v in node.items() if k not in {"$ref", "$defs"}}
    name = str(node.get("$ref", "")).removeprefix("#/$defs/")
    if name in within or name not in defined:
        return rest
    return _expanded(defined[name], defined, (*within, name)) | rest
