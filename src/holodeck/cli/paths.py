"""Which agent.yaml files the paths of a command line mean."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from holodeck import errors
from holodeck.config.loader import DEFAULT_AGENT_FILE

_NOT_LOOKED_INTO = {"__pycache__", "node_modules", "site-packages", "venv"}
_YAML = {".yaml", ".yml"}


@dataclass(frozen=True)
class Found:
    """What paths lead to."""

    agents: list[str]
    """Files, each once, as short as the user wrote them."""
    others: list[str]
    """YAML files in the folders that are named otherwise."""


def found_in(paths: Sequence[str]) -> Found:
    """The agents that the paths mean; a folder means every agent.yaml in it and below.

    Without paths, the agent.yaml of the working folder. Raises FileNotFoundError for a folder
    without any; a file that is not there is found out when it is read.
    """
    agents: dict[Path, str] = {}
    others: list[str] = []
    for path in paths or (DEFAULT_AGENT_FILE,):
        if not os.path.isdir(path):  # noqa: PTH112 - a name too long is no folder, and no error yet
            agents.setdefault(Path(os.path.realpath(path)), path)
            continue
        inside = list(_yaml_files(Path(path)))
        own = [file for file in inside if file.name == DEFAULT_AGENT_FILE]
        if not own:
            raise errors.FileNotFoundError(
                path, f"neither the folder nor one in it has an {DEFAULT_AGENT_FILE}"
            )
        others += [str(file) for file in inside if file.name != DEFAULT_AGENT_FILE]
        for file in own:
            agents.setdefault(file.resolve(), str(file))
    return Found(list(agents.values()), others)


def _yaml_files(folder: Path) -> Iterator[Path]:
    """Those in a folder and below it, folder by folder; hidden folders are left alone."""
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(
            one for one in folders if not one.startswith(".") and one not in _NOT_LOOKED_INTO
        )
        yield from (Path(where, one) for one in sorted(files) if Path(one).suffix in _YAML)
