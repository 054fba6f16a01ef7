"""Instructions and response format of an agent, which may be files beside the agent.yaml."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from holodeck.config.prompt_files import INSTRUCTIONS, Prompt, inline_prompt, read_prompt
from holodeck.config.yaml.source import read_text
from holodeck.errors import ConfigError
from holodeck.lib.support.json_schemas import check_keywords, schemas_in
from holodeck.models.agent import Agent
from holodeck.models.results.origin import PromptVersion
from holodeck.models.tools.prompt import PromptTool


def load_instructions(agent: Agent) -> str:
    """Return the instructions without front matter; "" for an agent without instructions.

    Raises FileNotFoundError, or ConfigError if the file is outside of the agent's folder,
    unreadable or empty, or its front matter is invalid.
    """
    prompt = read_instructions(agent)
    return "" if prompt is None else prompt.text


def read_instructions(agent: Agent) -> Prompt | None:
    """Return the instructions with their version; None for an agent without instructions.

    Raises what `load_instructions` raises.
    """
    if agent.instructions is None:
        return None
    if agent.instructions.inline is not None:
        return inline_prompt(INSTRUCTIONS, agent.instructions.inline)
    location = f"{agent.location('instructions', 'file')}: instructions.file"
    return read_prompt(INSTRUCTIONS, agent.instructions.file or "", agent.own_dir, location)


def read_tool_prompt(agent: Agent, tool: PromptTool) -> Prompt:
    """Return the prompt of a tool with its version.

    Raises FileNotFoundError, or ConfigError if the file is outside of the agent's folder,
    unreadable or empty, or its front matter is invalid.
    """
    if tool.template is not None:
        return inline_prompt(tool.name, tool.template)
    index = next(at for at, one in enumerate(agent.tools or []) if one.name == tool.name)
    location = f"{agent.location('tools', index, 'file')}: tools[{index}].file"
    return read_prompt(tool.name, tool.file or "", agent.own_dir, location)


def prompt_versions(agent: Agent) -> list[PromptVersion]:
    """Return the versions of the instructions and of the prompt tools, in this order.

    An agent with a backend of its own has none. Raises what reading them raises.
    """
    if agent.has_own_model:
        return []
    tools = [tool for tool in agent.tools or [] if isinstance(tool, PromptTool)]
    prompts = [read_instructions(agent), *(read_tool_prompt(agent, tool) for tool in tools)]
    return [prompt.version for prompt in prompts if prompt is not None]


KEYWORDS = (
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "default",
    "description",
    "minimum",
    "maximum",
)
TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")


def load_response_schema(agent: Agent) -> dict[str, Any] | None:
    """Return the JSON schema of responses, or None if they may be any text.

    A mapping with a `json_schema` key has the provider's own form and is not checked. Raises
    FileNotFoundError, or ConfigError that names the invalid keyword.
    """
    given = agent.response_format
    if given is None:
        return None
    location = f"{agent.location('response_format')}: response_format"
    schema = _from_file(agent, given, location) if isinstance(given, str) else given
    if "json_schema" not in schema:
        check_keywords(schema, location, KEYWORDS)
        _check_schema(schema, location)
    return schema


def _from_file(agent: Agent, name: str, location: str) -> dict[str, Any]:
    text = read_text(name, agent.own_dir, location)
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(location, f"{name!r} is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise ConfigError(location, f"{name!r} holds a {type(schema).__name__}; expected an object")
    return schema


def _check_schema(schema: Any, location: str) -> None:
    if not isinstance(schema, Mapping):
        raise ConfigError(location, f"found {_kind(schema)}; expected a schema, which is a mapping")
    for keyword, value in schema.items():
        problem = _VALIDATORS[keyword](value)
        if problem:
            raise ConfigError(f"{location}.{keyword}", problem)
    for name, below in schemas_in(schema):
        if name != "additionalProperties" or isinstance(below, Mapping):
            _check_schema(below, f"{location}.{name}")


def _validate_type(value: Any) -> str | None:
    if isinstance(value, str) and value in TYPES:
        return None
    return f"found {value!r}; expected one of {', '.join(TYPES)}"


def _validate_required(value: Any) -> str | None:
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return None
    return f"found {_kind(value)}; expected a list of property names"


def _validate_additional_properties(value: Any) -> str | None:
    if isinstance(value, bool | Mapping):
        return None
    return f"found {_kind(value)}; expected true, false or a schema"


def _expect(kinds: type | tuple[type, ...], words: str) -> Callable[[Any], str | None]:
    def validate(value: Any) -> str | None:
        fits = isinstance(value, kinds) and not (isinstance(value, bool) and "number" in words)
        return None if fits else f"found {_kind(value)}; expected {words}"

    return validate


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false"}
    return names.get(type(value), "nothing" if value is None else "a number")


_VALIDATORS: dict[str, Callable[[Any], str | None]] = {
    "type": _validate_type,
    "properties": _expect(dict, "a mapping of names to schemas"),
    "required": _validate_required,
    "additionalProperties": _validate_additional_properties,
    "items": _expect(dict, "a schema"),
    "enum": lambda value: (
        None if isinstance(value, list) and value else "expected a list of values"
    ),
    "default": lambda _: None,
    "description": _expect(str, "text"),
    "minimum": _expect((int, float), "a number"),
    "maximum": _expect((int, float), "a number"),
}
