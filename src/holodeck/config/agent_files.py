"""What the agent is told, without the file's front matter."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from holodeck.config.source import Source, read_text
from holodeck.errors import ConfigError
from holodeck.lib.json_schemas import check_keywords, schemas_in
from holodeck.models.agent import Agent

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


def load_instructions(agent: Agent) -> str:
    """The text for the model, word for word; "" for an agent without instructions.

    Raises FileNotFoundError if the file is not there, ConfigError if it is outside of the agent's
    folder, unreadable or says nothing.
    """
    if agent.instructions is None:
        return ""
    if agent.instructions.inline is not None:
        return agent.instructions.inline
    name = agent.instructions.file or ""
    where = f"{agent.place('instructions', 'file')}: instructions.file"
    text = strip_front_matter(read_text(name, agent.base_dir, where), name)
    if not text.strip():
        raise ConfigError(where, f"{name!r} says nothing; write what the agent is to do")
    return text


def strip_front_matter(text: str, name: str) -> str:
    """`text` without a mapping between two lines `---` at its very beginning.

    Raises ConfigError where that block looks like one and cannot be read.
    """
    match = _FRONT_MATTER.match(text)
    if match is None or not match[1].strip():
        return text if match is None else text[match.end() :]
    if not re.search(r"^\S+:(\s|$)", match[1], re.MULTILINE):
        return text
    try:
        Source.of(match[1], name)
    except ConfigError as error:
        raise ConfigError(
            name,
            f"the front matter cannot be read: {error.message}; if it is meant as text, begin the"
            " file with an empty line",
        ) from error
    return text[match.end() :].lstrip("\r\n")


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
    """The schema of the answers; None if they may be any text.

    A mapping with a `json_schema` key is the provider's own form and is taken as it is. Raises
    FileNotFoundError, and ConfigError naming the keyword that is wrong.
    """
    given = agent.response_format
    if given is None:
        return None
    where = f"{agent.place('response_format')}: response_format"
    schema = _from_file(agent, given, where) if isinstance(given, str) else given
    if "json_schema" not in schema:
        check_keywords(schema, where, KEYWORDS)
        _check_schema(schema, where)
    return schema


def _from_file(agent: Agent, name: str, where: str) -> dict[str, Any]:
    text = read_text(name, agent.base_dir, where)
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(where, f"{name!r} is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise ConfigError(where, f"{name!r} holds a {type(schema).__name__}; wanted an object")
    return schema


def _check_schema(schema: Any, where: str) -> None:
    if not isinstance(schema, Mapping):
        raise ConfigError(where, f"found {_kind(schema)}; a schema is a mapping")
    for keyword, value in schema.items():
        complaint = _COMPLAINTS[keyword](value)
        if complaint:
            raise ConfigError(f"{where}.{keyword}", complaint)
    for name, below in schemas_in(schema):
        if name != "additionalProperties" or isinstance(below, Mapping):
            _check_schema(below, f"{where}.{name}")


def _type(value: Any) -> str | None:
    if isinstance(value, str) and value in TYPES:
        return None
    return f"found {value!r}; wanted one of {', '.join(TYPES)}"


def _required(value: Any) -> str | None:
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return None
    return f"found {_kind(value)}; wanted a list of property names"


def _additional(value: Any) -> str | None:
    if isinstance(value, bool | Mapping):
        return None
    return f"found {_kind(value)}; wanted true, false or a schema"


def _a(kinds: type | tuple[type, ...], words: str) -> Callable[[Any], str | None]:
    def complaint(value: Any) -> str | None:
        fits = isinstance(value, kinds) and not (isinstance(value, bool) and "number" in words)
        return None if fits else f"found {_kind(value)}; wanted {words}"

    return complaint


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false"}
    return names.get(type(value), "nothing" if value is None else "a number")


_COMPLAINTS: dict[str, Callable[[Any], str | None]] = {
    "type": _type,
    "properties": _a(dict, "a mapping of names to schemas"),
    "required": _required,
    "additionalProperties": _additional,
    "items": _a(dict, "a schema"),
    "enum": lambda value: None if isinstance(value, list) and value else "wanted a list of values",
    "default": lambda _: None,
    "description": _a(str, "text"),
    "minimum": _a((int, float), "a number"),
    "maximum": _a((int, float), "a number"),
}
