"""`holodeck test` on several agents: all of them read first, then one after the other."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from holodeck.cli.agent_paths import FoundAgents
from holodeck.cli.cli_context import CliContext
from holodeck.cli.error_output import print_error
from holodeck.cli.preview import case_rows
from holodeck.cli.test_options import (
    LoadedAgent,
    TestOptions,
    load_agent,
    run_with_options,
    select_cases,
)
from holodeck.config.owners import why_left_out
from holodeck.errors import ExitCode, HoloDeckError, NothingSelected
from holodeck.lib.ui.live import put

_MOST_OTHERS = 5
_BROKEN_OFF = (ExitCode.INTERRUPTED, ExitCode.TERMINATED)
_WORST_FIRST = (
    *_BROKEN_OFF,
    ExitCode.CONFIG,
    ExitCode.EXECUTION,
    ExitCode.EVALUATION,
    ExitCode.BUDGET,
    ExitCode.TEST_FAILED,
    ExitCode.NOTHING_SELECTED,
    ExitCode.PASSED,
)


def run_agents(asked: TestOptions, found: FoundAgents, invocation: CliContext) -> int:
    """Do what was asked with each agent that was found; the worst exit code of all."""
    if len(found.subjects) > 1:
        _refuse_what_is_for_one(asked, len(found.subjects))
    agents = [load_agent(asked, one, invocation) for one in found.subjects]
    read = {path for one in agents for path in one.files}
    unread = {one: why_left_out(one) for one in found.others if Path(one).resolve() not in read}
    foreign = [one for one, reason in unread.items() if reason is None]
    if foreign:
        click.echo(invocation.clean(_left_alone(foreign)), err=True)
    if len(agents) == 1:
        code = run_with_options(asked, agents[0], invocation)
    else:
        code = _answer_each(asked, agents, invocation)
    not_run = [f"Not run: {one}: {reason}" for one, reason in unread.items() if reason is not None]
    for line in not_run:
        click.echo(invocation.clean(line), err=True)
    return code or (ExitCode.NOTHING_SELECTED if not_run else ExitCode.PASSED)


def _answer_each(asked: TestOptions, agents: Sequence[LoadedAgent], invocation: CliContext) -> int:
    """Do what was asked with one agent after the other."""
    if asked.look == "list" and asked.as_json:
        return _list_as_json(asked, agents, invocation)
    codes: dict[str, int] = {}
    for number, one in enumerate(agents, 1):
        put(sys.stdout, invocation.clean(f"\nAgent {number}/{len(agents)}: {one.title}\n"))
        code = _code_of(asked, one, invocation)
        if code is not None:
            codes[one.title] = code
        if code in _BROKEN_OFF:
            break
    return _told(asked, codes, [one.title for one in agents], invocation)


def _left_alone(others: Sequence[str]) -> str:
    more = len(others) - _MOST_OTHERS
    names = ", ".join(others[:_MOST_OTHERS]) + (f" and {more} more" if more > 0 else "")
    return f"Run only where an agent.yaml names them: {names}"


def _refuse_what_is_for_one(asked: TestOptions, count: int) -> None:
    """Raise UsageError for options whose result is that of one agent."""
    for flag, is_given in (
        ("--output", bool(asked.targets)),
        ("--resume", asked.resume is not None),
        ("--debug", asked.debug),
        ("--dry-run --json", asked.look == "plan" and asked.as_json),
    ):
        if is_given:
            raise click.UsageError(f"{flag} is for one agent, and the paths lead to {count}")


def _code_of(asked: TestOptions, one: LoadedAgent, invocation: CliContext) -> int | None:
    """What came of an agent; None if none of its cases was chosen."""
    try:
        return run_with_options(asked, one, invocation)
    except NothingSelected as error:
        click.echo(invocation.brief(f"{one.title}: {error}"), err=True)
        return None
    except HoloDeckError as error:  # the others can still be run
        print_error(error, invocation)
        return error.exit_code


def _told(
    asked: TestOptions, codes: dict[str, int], titles: Sequence[str], invocation: CliContext
) -> int:
    """The worst code, and with runs a line about each agent."""
    if asked.look is None:
        lines = [f"  {_said(codes.get(one), codes)}  {one}" for one in titles]
        put(sys.stdout, invocation.clean("\n".join(["", "Agents:", *lines])) + "\n")
    if not codes:
        return ExitCode.NOTHING_SELECTED
    return min(codes.values(), key=lambda code: _WORST_FIRST.index(ExitCode(code)))


def _said(code: int | None, codes: dict[str, int]) -> str:
    if code is not None:
        return f"exit {code}"
    return "not run" if any(one in _BROKEN_OFF for one in codes.values()) else "no case chosen"


def _list_as_json(asked: TestOptions, agents: Sequence[LoadedAgent], invocation: CliContext) -> int:
    rows = []
    for one in agents:
        try:
            agent, _ = select_cases(one, invocation)
        except NothingSelected as error:
            click.echo(invocation.brief(f"{one.title}: {error}"), err=True)
        else:
            rows += [{"agent": one.path, **row} for row in case_rows(agent)]
    put(sys.stdout, invocation.clean(json.dumps(rows, indent=2)) + "\n")
    is_fine = bool(rows) or asked.request.allow_empty
    return ExitCode.PASSED if is_fine else ExitCode.NOTHING_SELECTED
