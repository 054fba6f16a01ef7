"""The JSON Schemas of the files that users write, for editors: draft-07, made from the models."""

import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from holodeck.models.agent import AgentFile, SuiteFile
from holodeck.models.config import GlobalConfig

FILES: dict[str, tuple[type[BaseModel], str]] = {
    "agent": (AgentFile, "agent.yaml"),
    "suite": (SuiteFile, "suite file"),
    "config": (GlobalConfig, "config.yaml"),
}
"""Kind of file → its model, and what it is called."""
DIALECT = "http://json-schema.org/draft-07/schema#"


class _Schema(GenerateJsonSchema):
    """Omits titles that only repeat the key."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a model."""
    schema = model.model_json_schema(ref_template="#/definitions/{model}", schema_generator=_Schema)
    definitions = schema.pop("$defs", {})
    return {**schema, "definitions": definitions}


def file_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file."""
    model, name = FILES[kind]
    schema = {**schema_of(model), "title": f"holodeck {name}"}
    return {"$schema": DIALECT, **change_objects(schema, _for_editors)}


def schema_text(kind: str) -> str:
    """Return the schema of a kind of file as the text of a file."""
    return json.dumps(file_schema(kind), indent=2, ensure_ascii=False) + "\n"


def change_objects(value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return JSON with `change` applied to every object in it, the innermost first."""
    if isinstance(value, list):
        return [change_objects(item, change) for item in value]
    if not isinstance(value, dict):
        return value
    return change({key: change_objects(item, change) for key, item in value.items()})


def _for_editors(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out defaults of null, which do not help, and wrap each `$ref` that has other keys
    beside it, which draft-07 would ignore."""
    if schema.get("default", "-") in (None, ""):
        del schema["default"]
    if isinstance(schema.get("$ref"), str) and len(schema) > 1:
        reference = schema.pop("$ref")
        return {"allOf": [{"$ref": reference}], **schema}
    return schema
