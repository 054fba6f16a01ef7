"""Which agents and suites the paths of a command line mean."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from holodeck import errors
from holodeck.config.owners import DEFAULT_AGENT_FILE, agent_above, holds_a_suite, is_yaml
from holodeck.errors import ConfigError

_DATA = {".csv", ".jsonl"}
_NOT_LOOKED_INTO = {"__pycache__", "node_modules", "site-packages", "venv"}


@dataclass(frozen=True)
class AgentTarget:
    """An agent that is to be tested."""

    path: str
    """Of its file, as short as the user wrote it."""
    suites: tuple[str, ...] = ()
    """Files of the suites that are meant; none means all its cases."""

    @property
    def args(self) -> tuple[str, ...]:
        """What to write on the command line to mean the same."""
        return self.suites or (self.path,)


@dataclass(frozen=True)
class FoundAgents:
    """What paths lead to."""

    subjects: list[AgentTarget]
    """Each once."""
    others: list[str]
    """YAML files in the folders that are named otherwise."""


def find_agents(paths: Sequence[str], agent: str | None = None) -> FoundAgents:
    """The agents that the paths mean; a folder means every agent.yaml in it and below.

    In a folder without one it means every suite. A suite is put to `agent`, else to the nearest
    agent.yaml beside or above its file. Without paths, the agent.yaml of the working folder is
    meant. Raises FileNotFoundError for a folder without both; files that are not there are told
    when read.
    """
    agents: dict[Path, str] = {}
    suites: dict[Path, list[str]] = {}
    others: list[str] = []
    for path in _each_file(paths or (DEFAULT_AGENT_FILE,), others):
        if holds_a_suite(path):
            suites.setdefault(Path(agent or _agent_above(path)), []).append(path)
        else:
            _refuse_data(path)
            agents.setdefault(Path(os.path.realpath(path)), path)
    if agent is not None and not suites:
        raise click.UsageError("--agent says whose suites files hold, and no PATH is such a file")
    subjects = [AgentTarget(path) for path in agents.values()]
    for owner, files in suites.items():
        subjects.append(AgentTarget(str(owner), tuple(dict.fromkeys(files))))
    return FoundAgents(subjects, others)


def _agent_above(path: str) -> str:
    """The nearest agent.yaml beside a file or above it. Raises ConfigError."""
    found = agent_above(path)
    if found is not None:
        return found
    raise ConfigError(
        path,
        f"holds a suite, and neither its folder nor one above has an {DEFAULT_AGENT_FILE};"
        " write one with a 'name' and a 'backend' such as 'module:Class', or name it with"
        " --agent FILE",
    )


def find_target(path: str) -> AgentTarget:
    """What one path means that is no folder of agents. Raises ConfigError."""
    return AgentTarget(_agent_above(path), (path,)) if holds_a_suite(path) else AgentTarget(path)


def _refuse_data(path: str) -> None:
    if Path(path).suffix in _DATA:
        raise ConfigError(
            path, "holds no agent; name it in 'test_cases_file' of an agent.yaml or a suite"
        )


def _each_file(paths: Sequence[str], others: list[str]) -> Iterator[str]:
    """The files that the paths mean; what else there is in folders is added to `others`."""
    for path in paths:
        if not os.path.isdir(path):  # noqa: PTH112 - a name too long is no folder, and no error yet
            yield path
            continue
        inside = list(_yaml_files(Path(path)))
        meant = [one for one in inside if one.name == DEFAULT_AGENT_FILE]
        meant = meant or list(filter(holds_a_suite, inside))
        if not meant:
            raise errors.FileNotFoundError(
                path, f"neither the folder nor one in it has an {DEFAULT_AGENT_FILE} or a suite"
            )
        yield from map(str, meant)
        others += [str(one) for one in inside if one not in meant]


def _yaml_files(folder: Path) -> Iterator[Path]:
    """Those in a folder and below it, folder by folder; hidden folders are left alone."""
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(
            one for one in folders if not one.startswith(".") and one not in _NOT_LOOKED_INTO
        )
        yield from (Path(where, one) for one in sorted(files) if is_yaml(one))
