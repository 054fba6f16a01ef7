"""What `holodeck test` was asked for, carried out on an agent."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from holodeck.cli.agent_loading import check_before_run, read_agent
from holodeck.cli.agent_paths import AgentTarget
from holodeck.cli.cli_context import CliContext
from holodeck.cli.debug_option import validate_debug_option, with_debug_settings
from holodeck.cli.preview import PreviewMode, case_list, plan_run
from holodeck.cli.report_output import ReportTarget
from holodeck.cli.resume import find_run, repeat_selection, resume_run
from holodeck.cli.selection_options import apply_selection
from holodeck.cli.test_run import TestRun
from holodeck.config.cases.left_out import current_left_out
from holodeck.config.source import shown
from holodeck.errors import ExitCode, NothingSelected
from holodeck.lib.selection.request import Request
from holodeck.lib.suggestions import did_you_mean_or_list
from holodeck.lib.ui.live import put
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.selection import Selection


@dataclass(frozen=True)
class TestOptions:
    """The options of the command line."""

    request: Request
    settings: ExecutionConfig
    targets: Sequence[ReportTarget] = ()
    look: PreviewMode | None = None
    """What to show instead of running; None for a run."""
    as_json: bool = False
    resume: str | None = None
    """The run to resume; None for a new one."""
    retry_errors: bool = False
    force: bool = False
    debug: bool = False
    """Whether a person speaks for simulated users."""


@dataclass(frozen=True)
class LoadedAgent:
    """An agent that has been read, and for a run checked."""

    subject: AgentTarget
    agent: Agent
    settings: ExecutionConfig
    request: Request
    """Which of its cases are meant."""
    files: frozenset[Path] = frozenset()
    """The files besides its own that test cases were read from."""

    @property
    def path(self) -> str:
        """Of its file, as the user wrote it."""
        return self.subject.path

    @property
    def title(self) -> str:
        """What it is called among others."""
        return ", ".join(self.subject.args)


def load_agent(asked: TestOptions, subject: AgentTarget, invocation: CliContext) -> LoadedAgent:
    """The agent in a file. Raises ConfigError for what can be known to be wrong with it."""
    if asked.debug:
        validate_debug_option(asked.settings)
    agent, settings, files = read_agent(subject, asked.settings, invocation)
    if asked.look != "list":  # a list is of use to whoever mends the rest
        check_before_run(agent, settings)
    return LoadedAgent(subject, agent, settings, _request_for(asked, subject), files)


def _request_for(asked: TestOptions, subject: AgentTarget) -> Request:
    """What is asked of the subject; files of suites are these suites."""
    if not subject.suites:
        return asked.request
    from holodeck.config.cases.suites import suite_name

    names = tuple(suite_name(Path(one)) for one in _not_left_out(subject.suites))
    return _within(names, asked.request)


def _within(suites: tuple[str, ...], request: Request) -> Request:
    """The request about these suites, or about those of them that it names itself.

    Raises NothingSelected for one that is not among them.
    """
    for one in request.suites if suites else ():
        if one not in suites:
            near = did_you_mean_or_list(one, suites)
            raise NothingSelected(f"--suite: the files hold no suite {one!r}{near}")
    return replace(request, suites=request.suites or suites)


def _not_left_out(suites: Sequence[str]) -> list[str]:
    """The files without those that `--skip-invalid` leaves out. Raises ConfigError if all are."""
    left_out = current_left_out()
    if left_out is None or not left_out.errors:
        return list(suites)
    rest = [one for one in suites if shown(Path(one).absolute()) not in left_out.errors]
    if suites and not rest:
        raise next(iter(left_out.errors.values()))
    return rest


def run_with_options(asked: TestOptions, one: LoadedAgent, invocation: CliContext) -> int:
    """Do what was asked with an agent; the exit code."""
    if asked.look is None:
        return _run(asked, one, invocation)
    agent, selection = select_cases(one, invocation)
    if asked.look == "list":
        text = case_list(agent, selection, as_json=asked.as_json)
    else:
        text = plan_run(agent, one.path, one.settings, selection, as_json=asked.as_json)
    put(sys.stdout, invocation.clean(text) + "\n")
    is_fine = bool(agent.test_cases) or asked.request.allow_empty
    return ExitCode.PASSED if is_fine else ExitCode.NOTHING_SELECTED


def select_cases(one: LoadedAgent, invocation: CliContext) -> tuple[Agent, Selection | None]:
    """The agent with the chosen cases, and what was chosen. Raises NothingSelected."""
    return apply_selection(one.agent, one.request, one.path, invocation)


def _run(asked: TestOptions, one: LoadedAgent, invocation: CliContext) -> int:
    before = None if asked.resume is None else find_run(asked.resume, one.agent.base_dir)
    is_watched = (
        invocation.read_tracker is not None
    )  # a round says all again, and cases may have come
    if before is not None and not asked.request.args() and not is_watched:
        agent, selection = repeat_selection(one.agent, before)
    else:
        agent, selection = select_cases(one, invocation)
    if selection is not None:
        click.echo(invocation.clean(f"Running {selection}"), err=True)
    earlier = None
    if before is not None:
        earlier = resume_run(agent, before, retry_errors=asked.retry_errors, force=asked.force)
    settings = with_debug_settings(agent, one.settings) if asked.debug else one.settings
    run = TestRun(one.path, agent, settings, asked.targets, invocation, selection, earlier)
    run.debug = asked.debug
    run.again = one.subject.args
    code = run.to_exit_code()
    is_empty = not agent.test_cases and code == ExitCode.NOTHING_SELECTED
    return ExitCode.PASSED if is_empty and asked.request.allow_empty else code
