"""`[tool.holodeck]` in a pyproject.toml: the defaults of a project."""

import os
import re
import tomllib
from pathlib import Path

from holodeck.config.cases.rows import to_node
from holodeck.config.cases.suite_files import DEFAULT_AGENT_FILE, find_agent_above, folders_up
from holodeck.config.yaml.source import Locations, Source, display_path, read_file
from holodeck.config.yaml.validation_errors import validate
from holodeck.errors import ConfigError
from holodeck.models.config import ProjectDefaults

_FILE = "pyproject.toml"
_HEADER = re.compile(r"^\s*\[\s*tool\s*\.\s*holodeck\b", re.MULTILINE)


def default_agent() -> str:
    """Return the agent that is meant where none is named. Raises ConfigError.

    It is the agent.yaml of the working folder, else the nearest one above it in the project, else
    that of the project's pyproject.toml, else the nearest one above the project.
    """
    if os.path.lexists(DEFAULT_AGENT_FILE):
        return DEFAULT_AGENT_FILE
    above = find_agent_above(DEFAULT_AGENT_FILE)
    found = find_project_defaults(Path.cwd())
    if found is None or found[1].agent is None:
        return above or DEFAULT_AGENT_FILE
    file, agent = found[0], found[1].agent
    folder = file.parent.resolve()
    if above is not None and Path(above).resolve().is_relative_to(folder):
        return above
    if not (folder / agent).resolve().is_relative_to(folder):
        raise ConfigError(
            display_path(file), f"tool.holodeck.agent: {agent!r} is outside of its folder"
        )
    return os.path.relpath(folder / agent)


def find_project_defaults(folder: Path) -> tuple[Path, ProjectDefaults] | None:
    """Return the nearest pyproject.toml with `[tool.holodeck]`, and what it says.

    It is searched from `folder` up to the root of the repository. Raises ConfigError.
    """
    for above in folders_up(folder):
        file = above / _FILE
        if file.is_file() and (defaults := _read(file)) is not None:
            return file, defaults
        if (above / ".git").exists():
            break
    return None


def _read(file: Path) -> ProjectDefaults | None:
    """Return what a pyproject.toml says of holodeck; None if it says nothing."""
    name = display_path(file)
    text = read_file(file, name)
    if "holodeck" not in text:
        return None
    try:
        table = tomllib.loads(text).get("tool", {}).get("holodeck")
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(name, f"is not TOML: {error}") from None
    if table is None:
        return None
    header = _HEADER.search(text)
    line = 1 if header is None else text.count("\n", 0, header.end()) + 1
    source = Source(name, to_node(table, line))
    defaults = validate(ProjectDefaults, table, Locations(source))
    if defaults.execution is None:
        return defaults
    sources = dict.fromkeys(defaults.execution.model_fields_set, f"{name}:{line}:1")
    return defaults.model_copy(update={"execution": defaults.execution.with_sources(sources)})
