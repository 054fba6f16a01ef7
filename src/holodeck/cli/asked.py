"""What `holodeck test` was asked for, carried out on one agent.yaml."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from holodeck.cli.invocation import Invocation
from holodeck.cli.loading import check_before_run, read
from holodeck.cli.looking import Look, listing, planned
from holodeck.cli.outputs import Target
from holodeck.cli.resuming import resumed, selected_again
from holodeck.cli.selecting import selected
from holodeck.cli.test_run import TestRun
from holodeck.errors import ExitCode
from holodeck.lib.records.shelf import Shelf
from holodeck.lib.selection.request import Request
from holodeck.lib.ui.live import put
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig


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


def answer(asked: Asked, agent_config: str, invocation: Invocation) -> int:
    """Do what was asked with the agent in a file; the exit code."""
    agent, settings = read(agent_config, asked.settings, invocation)
    if asked.look != "list":  # a list is of use to whoever mends the rest
        check_before_run(agent, settings)
    if asked.look is None:
        return _run(asked, agent_config, agent, settings, invocation)
    agent, selection = selected(agent, asked.request, agent_config, invocation)
    if asked.look == "list":
        text = listing(agent, selection, as_json=asked.as_json)
    else:
        text = planned(agent, agent_config, settings, selection, as_json=asked.as_json)
    put(sys.stdout, invocation.clean(text) + "\n")
    is_fine = bool(agent.test_cases) or asked.request.allow_empty
    return ExitCode.PASSED if is_fine else ExitCode.NOTHING_SELECTED


def _run(
    asked: Asked,
    agent_config: str,
    agent: Agent,
    settings: ExecutionConfig,
    invocation: Invocation,
) -> int:
    before = None if asked.resume is None else Shelf(agent.base_dir).read(asked.resume)
    if before is not None and not asked.request.args():
        agent, selection = selected_again(agent, before)
    else:
        agent, selection = selected(agent, asked.request, agent_config, invocation)
    if selection is not None:
        click.echo(invocation.clean(f"Running {selection}"), err=True)
    earlier = None
    if before is not None:
        earlier = resumed(agent, before, retry_errors=asked.retry_errors, force=asked.force)
    run = TestRun(agent_config, agent, settings, asked.targets, invocation, selection, earlier)
    code = run.to_exit_code()
    is_empty = not agent.test_cases and code == ExitCode.NOTHING_SELECTED
    return ExitCode.PASSED if is_empty and asked.request.allow_empty else code
