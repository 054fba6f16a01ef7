"""Vector stores that tools name in `database`."""

from collections.abc import Mapping
from typing import Any

from holodeck.config.yaml.nodes import quote
from holodeck.config.yaml.source import KeyPath, Locations, format_key_path
from holodeck.errors import ConfigError
from holodeck.lib.support.text import did_you_mean
from holodeck.models.config import GlobalConfig
from holodeck.models.tools.database import ALIASES, VectorStoreProvider, VectorStoreSettings

_TOOL_TYPES = ("vectorstore", "hierarchical_document")


def with_vector_stores(
    agent: dict[str, Any],
    shared: GlobalConfig | None,
    locations: Locations,
    problems: list[ConfigError],
) -> dict[str, Any]:
    """Return the values of an agent.yaml with the stores of config.yaml in place of their names.

    Unknown names are added to `problems`, unless an error of a config.yaml is there already: that
    file may have them.
    """
    tools = agent.get("tools")
    if not isinstance(tools, list):
        return agent
    known = (shared.vectorstores if shared else None) or {}
    is_complete = not problems
    resolved = []
    for index, tool in enumerate(tools):
        name = _store_name(tool)
        store = None if name is None else known.get(name)
        path = ("tools", index, "database")
        if store is not None:
            tool = {**tool, "database": store}  # noqa: PLW2901 - the same with its store
        elif name is not None and is_complete:
            problems.append(_problem(_unknown_store(name, known), path, locations))
        resolved.append(tool)
    return {**agent, "tools": resolved}


def _store_name(tool: Any) -> str | None:
    """Return the name of a tool's store; None if it has none."""
    if not isinstance(tool, dict) or tool.get("type") not in _TOOL_TYPES:
        return None
    name = tool.get("database")
    return name if isinstance(name, str) else None


def _unknown_store(name: str, known: Mapping[str, VectorStoreSettings]) -> str:
    message = f"unknown vector store {quote(name)}"
    if known:
        return message + did_you_mean(name, known, f"; config.yaml has {', '.join(known)}")
    if name in {*VectorStoreProvider, *ALIASES}:
        return f"{message}; a product is written as a mapping: 'database: {{provider: {name}}}'"
    return f"{message}; name it under 'vectorstores' in a config.yaml beside the agent.yaml"


def _problem(message: str, path: KeyPath, locations: Locations) -> ConfigError:
    origin = locations.origin(path)
    return ConfigError(origin.location, f"{format_key_path(origin.path)}: {message}")
