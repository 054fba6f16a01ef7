"""Instructions, prompts and response format, which may be files beside the agent.yaml."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from holodeck.config.yaml.source import Source, read_text
from holodeck.errors import ConfigError
from holodeck.lib.support.text import instance_of
from holodeck.models.agent import Agent
from holodeck.models.results.origin import PromptVersion
from holodeck.models.tool import PromptTool

INSTRUCTIONS = "instructions"
"""The name of the prompt that is the agent's instructions."""
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_KEY = re.compile(r"^\S+:(\s|$)", re.MULTILINE)
_TEXT_KEYS = ("version", "author", "description")
_NO_MATTER: Mapping[str, Any] = {}
KNOWN_KEYS = (*_TEXT_KEYS, "tags")
"""Keys of front matter with a meaning of their own."""


@dataclass(frozen=True)
class Prompt:
    """A prompt, as it is sent."""

    text: str
    version: PromptVersion


def read_prompt(name: str, file: str, folder: Path, location: str) -> Prompt:
    """Return the prompt `name` in a file, without its front matter.

    Raises FileNotFoundError, or ConfigError if the file is outside of the folder, unreadable or
    empty, or its front matter is invalid.
    """
    matter, text = split_front_matter(read_text(file, folder, location), file)
    if not text.strip():
        wanted = "the instructions for the agent" if name == INSTRUCTIONS else "the prompt"
        raise ConfigError(location, f"{file!r} is empty; write {wanted}")
    return _prompt(name, text, file, matter)


def _prompt(
    name: str, text: str, file: str | None = None, matter: Mapping[str, Any] = _NO_MATTER
) -> Prompt:
    body_hash = sha256(text.encode()).hexdigest()
    version = PromptVersion(
        name=name,
        version=matter.get("version") or f"auto-{body_hash[:8]}",
        author=matter.get("author"),
        description=matter.get("description"),
        tags=matter.get("tags") or [],
        source="inline" if file is None else "file",
        file_path=file,
        body_hash=body_hash,
        extra={key: value for key, value in matter.items() if key not in KNOWN_KEYS},
    )
    return Prompt(text, version)


def split_front_matter(text: str, name: str) -> tuple[dict[str, Any], str]:
    """Return the YAML mapping between two `---` lines at the beginning of a text, and the rest.

    A block without any `key:` is no front matter but text under a rule of Markdown. Raises
    ConfigError, with file, line and column, if the block looks like a mapping and is invalid.
    """
    match = _FRONT_MATTER.match(text)
    if match is None:
        return {}, text
    if not match[1].strip():
        return {}, text[match.end() :]
    if not _KEY.search(match[1]):
        return {}, text
    block = "\n" + match[1]  # so that lines count from the beginning of the file
    try:
        source = Source.of(block, name)
    except ConfigError as error:
        raise ConfigError(
            error.field,
            f"invalid front matter: {error.message}; if it is text, begin the file with an empty"
            " line",
        ) from error
    matter = source.data()
    for key in KNOWN_KEYS:
        if matter.get(key) is not None:
            matter[key] = _known_value(source, block, key, matter[key])
    return matter, text[match.end() :].lstrip("\r\n")


def _known_value(source: Source, block: str, key: str, value: Any) -> str | list[str]:
    """Return the value of a known key as text, and `tags` as a list. Raises ConfigError."""
    if key == "tags":
        tags = value if isinstance(value, list) else [value]
        if all(isinstance(tag, str | int | float) for tag in tags):
            return [str(tag) for tag in tags]
        expected = "a list of words"
    elif isinstance(value, str):
        return value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _, node = source.find((key,))
        written = block.split("\n")[node.line - 1][node.column - 1 :]
        return written.partition(" #")[0].strip()  # 1.10 stays 1.10
    else:
        expected = "text"
    raise ConfigError(
        source.location((key,)), f"invalid front matter: '{key}' must be {expected}, not {value!r}"
    )


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
        return _prompt(INSTRUCTIONS, agent.instructions.inline)
    location = f"{agent.location('instructions', 'file')}: instructions.file"
    return read_prompt(INSTRUCTIONS, agent.instructions.file or "", agent.own_dir, location)


def read_tool_prompt(agent: Agent, tool: PromptTool) -> Prompt:
    """Return the prompt of a tool with its version.

    Raises FileNotFoundError, or ConfigError if the file is outside of the agent's folder,
    unreadable or empty, or its front matter is invalid.
    """
    if tool.template is not None:
        return _prompt(tool.name, tool.template)
    index = next(at for at, entry in enumerate(agent.tools or []) if entry.name == tool.name)
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


def load_response_schema(agent: Agent) -> dict[str, Any] | None:
    """Return the JSON schema of responses, or None if they may be any text.

    A mapping with a `json_schema` key has the provider's own form and is not checked. Raises
    FileNotFoundError, or ConfigError that names what is invalid.
    """
    given = agent.response_format
    if given is None:
        return None
    location = f"{agent.location('response_format')}: response_format"
    schema: Any = given
    if isinstance(given, str):
        text = read_text(given, agent.own_dir, location)
        try:
            schema = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(location, f"{given!r} is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise ConfigError(location, f"{given!r} holds {instance_of(schema)}; expected an object")
    if "json_schema" not in schema:
        # Imported here because few agents have a schema.
        from holodeck.lib.evaluators.json_schema import check_schema  # noqa: PLC0415

        check_schema(schema, location)
    return schema
