"""Finds the agents and suites that the paths of a command line contain, reads and checks them."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from holodeck import errors
from holodeck.cli.context import CliContext
from holodeck.cli.logs import start_logging
from holodeck.cli.options import confirm_endpoints
from holodeck.config.cases.suite_files import (
    DEFAULT_AGENT_FILE,
    current_invalid_suites,
    find_agent_above,
    is_suite_file,
    is_yaml,
)
from holodeck.config.cases.suites import suite_name
from holodeck.config.checks.agent import check_before_run, log_findings
from holodeck.config.loader import ConfigLoader, agent_file, load_agent_with_config
from holodeck.config.project_file import default_agent
from holodeck.config.secrets import collect
from holodeck.config.yaml.source import display_path
from holodeck.errors import ConfigError, NothingSelected
from holodeck.lib.support.text import did_you_mean_or_list
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig

if TYPE_CHECKING:
    from holodeck.config.checks.findings import Finding
    from holodeck.lib.compare.against import SecondAgent
    from holodeck.lib.selection.request import SelectionRequest
    from holodeck.models.results.origin import Selection

logger = logging.getLogger(__name__)

PreviewMode = Literal["list", "plan"]
_DATA_SUFFIXES = {".csv", ".jsonl"}
_IGNORED_FOLDERS = {"__pycache__", "node_modules", "site-packages", "venv"}


@dataclass(frozen=True)
class AgentTarget:
    """An agent to test."""

    path: str
    """Of its file, as short as the user wrote it."""
    suites: tuple[str, ...] = ()
    """Suite files to run with it; none means all test cases of the agent."""
    adapter: str | None = None
    """The agent as `module:attribute`, which is then `path`, too; None if an agent.yaml has it."""
    names: tuple[str, ...] = ()
    """The cases of `PATH::NAME`, as `SelectionRequest` has them; none means all."""

    @property
    def args(self) -> tuple[str, ...]:
        """The arguments of the command line that mean the same."""
        adapter = () if self.adapter is None else ("--adapter", self.adapter)
        return (*adapter, *(self.suites or (self.path,)))

    @property
    def title(self) -> str:
        """What messages call it."""
        return ", ".join(self.suites or (self.path,))


@dataclass(frozen=True)
class FoundAgents:
    """What the paths contain."""

    targets: list[AgentTarget]
    """Each agent once."""
    others: list[str]
    """YAML files in the folders that are neither an agent.yaml nor run as suites."""
    unused_agents: Sequence[str] = ()
    """Each agent.yaml in the folders that is not read, because `--adapter` names the agent."""


def find_suites(paths: Sequence[str], adapter: str) -> FoundAgents:
    """Return the suites that the paths contain, to run with an adapter; no agent.yaml is read.

    `adapter` is `module:attribute`, or `module.Class` as AgenticAssure writes it. Without paths,
    the suites of the working folder are used. Raises FileNotFoundError and UsageError.
    """
    module, _, attribute = adapter.rpartition("." if ":" not in adapter else ":")
    if not module or not attribute:
        raise click.UsageError(f"--adapter: found {adapter!r}; expected 'module:Class'")
    adapter = f"{module}:{attribute}"
    others: list[str] = []
    suites = dict.fromkeys(_each_file(paths or (".",), others, only_suites=True))
    for path in suites:
        if Path(path).is_file() and not is_suite_file(path):
            raise click.UsageError(f"--adapter runs suite files, and {path!r} is not one")
    agents = [file for file in others if Path(file).name == DEFAULT_AGENT_FILE]
    others = [file for file in others if file not in agents]
    return FoundAgents([AgentTarget(adapter, tuple(suites), adapter)], others, agents)


def find_agents(
    paths: Sequence[str], agent: str | None = None, *, needs_agent: bool = True
) -> FoundAgents:
    """Return the agents that the paths contain; a folder contains every agent.yaml below it.

    A folder without an agent.yaml contains every suite below it. A suite runs with `agent`, else
    with the nearest agent.yaml beside or above its file; unless `needs_agent`, suites without it
    are a target with an adapter that cannot be called. Without paths, the agent.yaml of the working
    folder is used, else the nearest above it. `PATH::NAME` means one case of a file. Raises
    FileNotFoundError for a folder without both; missing files are reported when they are read.
    """
    agents: dict[Path, str] = {}
    suites: dict[Path, list[str]] = {}
    alone: list[str] = []
    others: list[str] = []
    names: dict[Path, set[str | None]] = {}
    for path, name in _named_files(paths or (default_agent(),), others):
        file = Path(os.path.realpath(path))
        names.setdefault(file, set()).add(name)
        if not needs_agent and is_suite_file(path) and find_agent_above(path) is None:
            alone.append(path)
        elif is_suite_file(path):
            suites.setdefault(Path(agent or _agent_above(path)), []).append(path)
        elif Path(path).suffix == ".py":
            raise ConfigError(
                path,
                "is Python code and not an agent.yaml; `holodeck init --from"
                f" {Path(path).stem}:OBJECT` writes one for an agent in it",
            )
        elif Path(path).suffix in _DATA_SUFFIXES:
            raise ConfigError(
                path,
                "is not an agent; name it in 'test_cases_file' of an agent.yaml or a suite",
            )
        else:
            agents.setdefault(file, path)
    if agent is not None and not suites:
        raise click.UsageError("--agent needs suite files, and no PATH is one; remove --agent")
    targets = [AgentTarget(path, names=_names(names[file])) for file, path in agents.items()]
    for owner, members in suites.items():
        parts = tuple(dict.fromkeys(members))
        targets.append(AgentTarget(str(owner), parts, names=_names_in_suites(parts, names)))
    if alone:
        from holodeck.models.agent import IN_PYTHON

        parts = tuple(dict.fromkeys(alone))
        named = _names_in_suites(parts, names)
        targets.append(AgentTarget(", ".join(parts), parts, IN_PYTHON, named))
    return FoundAgents(targets, others)


def _named_files(paths: Sequence[str], others: list[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the files that the paths contain, with the NAME of `FILE::NAME`; see `_each_file`."""
    for path in paths:
        file, separator, name = path.partition("::")
        if not separator or os.path.lexists(path):
            yield from ((found, None) for found in _each_file((path,), others))
            continue
        file = file or default_agent()
        if not name.strip():
            raise click.UsageError(f"{path!r} names no test case; write {file}::NAME, or {file}")
        if os.path.isdir(file):  # noqa: PTH112 - a Path would raise for a name too long
            raise click.UsageError(f"{file!r} is a folder; write FILE::NAME for a test case")
        yield file, name


def _names(wanted: Set[str | None]) -> tuple[str, ...]:
    """Return the names of the wanted cases; none if the file is wanted as a whole, too."""
    return () if None in wanted else tuple(sorted(filter(None, wanted)))


def _names_in_suites(
    files: Sequence[str], wanted: Mapping[Path, Set[str | None]]
) -> tuple[str, ...]:
    """Return the cases of suites that are run together; none if all of them are wanted."""
    names: list[str] = []
    are_whole = True
    for file in files:
        suite, parts = suite_name(Path(file)), _names(wanted[Path(os.path.realpath(file))])
        names += [f"{suite}::{part.removeprefix(f'{suite}::')}" for part in parts] or [suite]
        are_whole &= not parts
    return () if are_whole else tuple(names)


def find_checked(path: str) -> FoundAgents:
    """Return the agents and suites that a path contains, to check them.

    Like `find_agents`, but each suite without an agent.yaml is a target of its own.
    """
    found = find_agents((path,), needs_agent=False)
    targets = []
    for target in found.targets:
        alone = target.suites if target.adapter is not None else ()
        targets += [replace(target, path=file, suites=(file,)) for file in alone] or [target]
    return FoundAgents(targets, found.others)


def find_target(path: str) -> AgentTarget:
    """Return the agent of a path that is not a folder of agents. Raises ConfigError."""
    return AgentTarget(_agent_above(path), (path,)) if is_suite_file(path) else AgentTarget(path)


def _agent_above(path: str) -> str:
    """Return the nearest agent.yaml beside a file or above it. Raises ConfigError."""
    agent = find_agent_above(path)
    if agent is not None:
        return agent
    raise ConfigError(
        path,
        f"is a suite, and neither its folder nor one above has an {DEFAULT_AGENT_FILE};"
        " write one with a 'name' and a 'backend' such as 'module:Class', name it with"
        " --agent FILE, or name your code with --adapter module:Class",
    )


def _each_file(
    paths: Sequence[str], others: list[str], *, only_suites: bool = False
) -> Iterator[str]:
    """Yield the files that the paths contain; add the other YAML files of folders to `others`."""
    for path in paths:
        if not os.path.isdir(path):  # noqa: PTH112 - a Path would raise for a name too long
            yield path
            continue
        inside = list(_yaml_files(Path(path)))
        agents = [file for file in inside if file.name == DEFAULT_AGENT_FILE]
        files = list(filter(is_suite_file, inside)) if only_suites or not agents else agents
        if not files:
            missing = "a suite" if only_suites else f"an {DEFAULT_AGENT_FILE} or a suite"
            raise errors.FileNotFoundError(path, f"neither the folder nor one in it has {missing}")
        yield from map(str, files)
        others += [str(file) for file in inside if file not in files]


def _yaml_files(folder: Path) -> Iterator[Path]:
    """Yield those in a folder and below it, without hidden folders."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(
            folder
            for folder in folders
            if not folder.startswith(".") and folder not in _IGNORED_FOLDERS
        )
        yield from (Path(parent, file) for file in sorted(files) if is_yaml(file))


@dataclass(frozen=True)
class CheckedAgent:
    """An agent whose configuration was read and, for a run, checked."""

    target: AgentTarget
    agent: Agent
    settings: ExecutionConfig
    request: "SelectionRequest"
    loader: ConfigLoader
    """Read the agent, and knows its environment variables."""
    second: "SecondAgent | None" = None
    """The agent to compare with."""

    @property
    def events(self) -> tuple[Path | None, str]:
        """The file for events, and where it is named."""
        path = self.settings.path_of("events", self.agent.base_dir)
        return path, self.settings.source_of("events")

    def select(self, context: CliContext) -> "tuple[Agent, Selection | None]":
        """Return the agent with the selected cases. Raises NothingSelected."""
        from holodeck.cli.selection import apply_selection

        return apply_selection(self.agent, self.request, self.target.path, context)


def load_checked(
    target: AgentTarget,
    settings: ExecutionConfig,
    request: "SelectionRequest",
    context: CliContext,
    *,
    against: str | None = None,
    preview_mode: PreviewMode | None = None,
) -> CheckedAgent:
    """Read an agent and, unless its cases are only listed, check it. Raises ConfigError.

    Args:
        target: The agent.
        settings: Those of the command line.
        request: Which cases are selected.
        context: Masks the secrets of the agent from now on.
        against: The agent to compare with; None for a run of the agent alone.
        preview_mode: What to show instead of running; None for a run.
    """
    folder = Path.cwd() if target.adapter is not None else agent_file(target.path).parent
    loader = ConfigLoader()
    env = loader.environment(folder)
    context.protect(collect(None, env))
    start_logging(context.verbosity, env, context.clean)
    agent, resolved, _ = load_agent_with_config(
        target.path, settings, target.suites, target.adapter, loader
    )
    context.protect(collect(agent, env))
    notice = loader.overridden_notice(agent, settings)
    if notice is not None and context.is_new_notice(notice):
        logger.warning("%s", notice)
    findings = []
    if preview_mode != "list":  # a list helps to fix the rest
        findings = _check_before_run(agent, resolved)
    second = None
    if against is not None:
        from holodeck.lib.compare.against import load_second_agent

        second = load_second_agent(against, agent, loader)
        context.protect(collect(second.agent, loader.environment(second.agent.base_dir)))
        if preview_mode != "list":
            second.check(agent, resolved, findings)
    if preview_mode is None:
        for tested in (agent, *([second.agent] if second is not None else ())):
            confirm_endpoints(tested, context)
    return CheckedAgent(target, agent, resolved, _request_for(request, target), loader, second)


def _check_before_run(agent: Agent, settings: ExecutionConfig) -> "list[Finding]":
    """Raise ConfigError for every error that can be found without a run; log warnings."""
    for name in type(settings).model_fields:
        source = settings.source_of(name)
        level = logging.DEBUG if source == "default" else logging.INFO
        logger.log(level, "setting %s = %s (%s)", name, getattr(settings, name), source)
    findings = check_before_run(agent, settings)
    log_findings(findings)
    return findings


def _request_for(request: "SelectionRequest", target: AgentTarget) -> "SelectionRequest":
    """Return the request, limited to the suites whose files are the target, and to its cases."""
    if target.names:
        request = replace(request, names=(*request.names, *target.names))
    if not target.suites:
        return request
    left_out = current_invalid_suites()
    errors = left_out.errors if left_out is not None else {}
    files = [file for file in target.suites if display_path(Path(file).absolute()) not in errors]
    if not files:
        raise next(iter(errors.values()))
    suites = tuple(suite_name(Path(file)) for file in files)
    for name in request.suites:
        if name not in suites:
            raise NothingSelected(
                f"--suite: no file contains the suite {name!r}{did_you_mean_or_list(name, suites)}"
            )
    return replace(request, suites=request.suites or suites)
