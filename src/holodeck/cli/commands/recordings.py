"""`holodeck recordings`: lists, checks and removes the recordings of an agent."""

from pathlib import Path

import click

from holodeck.cli.agents import find_target, load_checked
from holodeck.cli.context import CliContext
from holodeck.cli.options import agent_option
from holodeck.errors import ExitCode
from holodeck.lib.recordings.store import RecordedFile, recorded_files, remove_files
from holodeck.lib.selection.request import SelectionRequest
from holodeck.lib.support.text import one_line, plural
from holodeck.lib.test_runner.recordings import about_agent, names_of, recordings_folder
from holodeck.lib.ui.live import echo
from holodeck.lib.ui.terminal import format_table
from holodeck.models.config import ExecutionConfig

NOT_RECORDED = "is not recorded; record it with --record"


@click.group()
def recordings() -> None:
    """List, check and remove recordings."""


@recordings.command("list")
@agent_option
@click.pass_context
def list_recordings(context: click.Context, agent: Path) -> None:
    """List the recordings, each with its entries, its day and its model."""
    cli_context = context.ensure_object(CliContext)
    files, _ = _files(agent, cli_context)
    rows = [("FILE", "CASE", "ENTRIES", "RECORDED", "MODEL")]
    for file in files:
        case = one_line(file.case, 40)
        rows.append((file.name, case, str(file.entries), file.day or "?", file.model or ""))
    table = format_table(rows) if files else "No recordings; `holodeck test --record` writes them"
    echo(cli_context.clean(table))


@recordings.command("check")
@agent_option
@click.pass_context
def check(context: click.Context, agent: Path) -> None:
    """Exit with 1 if a recording cannot be replayed, is outdated, or is of no case."""
    cli_context = context.ensure_object(CliContext)
    files, missing = _files(agent, cli_context)
    problems = [f"{file.name}: {problem}" for file in files for problem in file.problems]
    problems += [f"{one_line(case, 80)}: {NOT_RECORDED}" for case in missing]
    for problem in problems:
        echo(cli_context.clean(problem))
    found = plural(len(problems), "problem") if problems else "ok"
    echo(f"{plural(len(files), 'recording')}: {found}")
    context.exit(ExitCode.TEST_FAILED if problems else ExitCode.PASSED)


@recordings.command("prune")
@agent_option
@click.pass_context
def prune(context: click.Context, agent: Path) -> None:
    """Delete the recordings of no case, and those that cannot be read."""
    files, _ = _files(agent, context.ensure_object(CliContext))
    unused = [file for file in files if file.is_useless]
    remove_files(unused)
    for file in unused:
        echo(f"deleted {file.name}")
    echo(f"{plural(len(unused), 'recording')} deleted, {len(files) - len(unused)} kept")


def _files(path: Path, context: CliContext) -> tuple[list[RecordedFile], list[str]]:
    """Return the recordings of an agent, and the names of the cases without one."""
    target = find_target(str(path))
    loaded = load_checked(
        target, ExecutionConfig(), SelectionRequest(), context, preview_mode="list"
    )
    agent, settings = loaded.agent, loaded.settings
    cases = agent.test_cases or []
    runs = [
        (name, repetition)
        for name, case in zip(names_of(cases), cases, strict=True)
        for repetition in range(1, (case.repeat or 1) + 1)
        if case.skip is None
    ]
    folder = recordings_folder(agent, settings, target.path)
    most = None if agent.recordings is None else agent.recordings.max_age_days
    files = recorded_files(folder, about_agent(agent), runs, most)
    recorded = {file.case for file in files if not file.is_useless}
    return files, list(dict.fromkeys(name for name, _ in runs if name not in recorded))
