"""What `holodeck test` was asked for, carried out on an agent."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from holodeck.cli.debugging import check_debug, debugged
from holodeck.cli.invocation import Invocation
from holodeck.cli.loading import check_before_run, read
from holodeck.cli.looking import Look, listing, planned
from holodeck.cli.outputs import Target
from holodeck.cli.paths import Subject
from holodeck.cli.resuming import resumed, run_named, selected_again
from holodeck.cli.selecting import selected
from holodeck.cli.test_run import TestRun
from holodeck.config.cases.skipping import left_out_now
from holodeck.config.source import shown
from holodeck.config.words import nearest_word
from holodeck.errors import ExitCode, NothingSelected
from holodeck.lib.selection.request import Request
from holodeck.lib.ui.live import put
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.selection import Selection


@dataclass(frozen=True)
class Asked:
    """The options of the command line."""

    request: Request
    settings: ExecutionConfig
    targets: Sequence[Target] = ()
    look: Look | None = None
    """What to show instead of running; None for a run."""
    as_json: bool = False
    resume: str | None = None
    """The run to resume; None for a new one."""
    retry_errors: bool = False
    force: bool = False
    debug: bool = False
    """Whether a person speaks for simulated users."""


@dataclass(frozen=True)
class Loaded:
    """An agent that has been read, and for a run checked."""

    subject: Subject
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


def load(asked: Asked, subject: Subject, invocation: Invocation) -> Loaded:
    """The agent in a file. Raises ConfigError for what can be known to be wrong with it."""
    if asked.debug:
        check_debug(asked.settings)
    agent, settings, files = read(subject, asked.settings, invocation)
    if asked.look != "list":  # a list is of use to whoever mends the rest
        check_before_run(agent, settings)
    return Loaded(subject, agent, settings, _request_for(asked, subject), files)


def _request_for(asked: Asked, subject: Subject) -> Request:
    """What is asked of the subject; files of suites are these suites."""
    if not subject.suites:
        return asked.request
    from holodeck.config.cases.suites import name_of_suite

    names = tuple(name_of_suite(Path(one)) for one in _not_left_out(subject.suites))
    return _within(names, asked.request)


def _within(suites: tuple[str, ...], request: Request) -> Request:
    """The request about these suites, or about those of them that it names itself.

    Raises NothingSelected for one that is not among them.
    """
    for one in request.suites if suites else ():
        if one not in suites:
            near = nearest_word(one, suites)
            raise NothingSelected(f"--suite: the files hold no suite {one!r}{near}")
    return replace(request, suites=request.suites or suites)


def _not_left_out(suites: Sequence[str]) -> list[str]:
    """The files without those that `--skip-invalid` leaves out. Raises ConfigError if all are."""
    left_out = left_out_now()
    if left_out is None or not left_out.errors:
        return list(suites)
    rest = [one for one in suites if shown(Path(one).absolute()) not in left_out.errors]
    if suites and not rest:
        raise next(iter(left_out.errors.values()))
    return rest


def carry_out(asked: Asked, one: Loaded, invocation: Invocation) -> int:
    """Do what was asked with an agent; the exit code."""
    if asked.look is None:
        return _run(asked, one, invocation)
    agent, selection = chosen(one, invocation)
    if asked.look == "list":
        text = listing(agent, selection, as_json=asked.as_json)
    else:
        text = planned(agent, one.path, one.settings, selection, as_json=asked.as_json)
    put(sys.stdout, invocation.clean(text) + "\n")
    is_fine = bool(agent.test_cases) or asked.request.allow_empty
    return ExitCode.PASSED if is_fine else ExitCode.NOTHING_SELECTED


def chosen(one: Loaded, invocation: Invocation) -> tuple[Agent, Selection | None]:
    """The agent with the chosen cases, and what was chosen. Raises NothingSelected."""
    return selected(one.agent, one.request, one.path, invocation)


def _run(asked: Asked, one: Loaded, invocation: Invocation) -> int:
    before = None if asked.resume is None else run_named(asked.resume, one.agent.base_dir)
    is_watched = invocation.witness is not None  # a round says all again, and cases may have come
    if before is not None and not asked.request.args() and not is_watched:
        agent, selection = selected_again(one.agent, before)
    else:
        agent, selection = chosen(one, invocation)
    if selection is not None:
        click.echo(invocation.clean(f"Running {selection}"), err=True)
    earlier = None
    if before is not None:
        earlier = resumed(agent, before, retry_errors=asked.retry_errors, force=asked.force)
    settings = debugged(agent, one.settings) if asked.debug else one.settings
    run = TestRun(one.path, agent, settings, asked.targets, invocation, selection, earlier)
    run.debug = asked.debug
    run.again = one.subject.args
    code = run.to_exit_code()
    is_empty = not agent.test_cases and code == ExitCode.NOTHING_SELECTED
    return ExitCode.PASSED if is_empty and asked.request.allow_empty else code
