"""The JSON Schema of agent.yaml, for editors: draft-07, made from the models."""

import json
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from holodeck.models.suite import AgentFile

DIALECT = "http://json-schema.org/draft-07/schema#"


class _Schema(GenerateJsonSchema):
    """Without titles that only repeat the key."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """What a mapping of this model may hold."""
    schema = model.model_json_schema(ref_template="#/definitions/{model}", schema_generator=_Schema)
    definitions = schema.pop("$defs", {})
    return {**schema, "definitions": definitions}


def agent_schema() -> dict[str, Any]:
    """What an agent.yaml may hold."""
    schema = {**schema_of(AgentFile), "title": "holodeck agent.yaml"}
    return {"$schema": DIALECT, **_for_draft_07(_without_null_defaults(schema))}


def schema_text() -> str:
    """The schema as the file that is published."""
    return json.dumps(agent_schema(), indent=2, ensure_ascii=False) + "\n"


def _without_null_defaults(value: Any) -> Any:
    """A default of null says nothing to an editor and is left out."""
    if isinstance(value, list):
        return [_without_null_defaults(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_null_defaults(one)
        for key, one in value.items()
        if not (key == "default" and one in (None, ""))
    }


def _for_draft_07(value: Any) -> Any:
    """Draft-07 ignores what stands beside `$ref`, so a reference with neighbours is wrapped."""
    if isinstance(value, list):
        return [_for_draft_07(one) for one in value]
    if not isinstance(value, dict):
        return value
    changed = {key: _for_draft_07(one) for key, one in value.items()}
    if isinstance(changed.get("$ref"), str) and len(changed) > 1:
        reference = changed.pop("$ref")
        return {"allOf": [{"$ref": reference}], **changed}
    return changed
