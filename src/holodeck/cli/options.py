"""Options that several commands share, and what the commands do with them."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holodeck.cli.context import CliContext
from holodeck.config.cases.suite_files import DEFAULT_AGENT_FILE
from holodeck.config.project_file import default_agent
from holodeck.errors import ConfigError
from holodeck.lib.ui.help import GroupedOption

if TYPE_CHECKING:
    from holodeck.cli.github_actions import GitHubActions
    from holodeck.lib.records.run_store import Run, RunStore
    from holodeck.lib.reports.formats import ReportTarget
    from holodeck.models.agent import Agent

F = TypeVar("F", bound=Callable[..., Any])


agent_option = click.option(
    "--agent",
    "-a",
    default=default_agent,
    show_default=DEFAULT_AGENT_FILE,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The agent.yaml, or its folder, whose runs to use.",
)


def file_option(description: str, **attributes: Any) -> Callable[[F], F]:
    """Return the option `--output` of a command that writes one file."""
    path = click.Path(path_type=Path, dir_okay=False)
    attributes = {"metavar": "FILE", "help": description, "type": path, **attributes}
    return click.option("--output", "-o", **attributes)


def run_store_of(agent: Path) -> "RunStore":
    """Return the runs recorded beside an agent.yaml; the file itself may be gone."""
    from holodeck.lib.records.run_store import RunStore

    return RunStore((agent if agent.is_dir() else agent.parent).absolute())


def read_run(run_store: "RunStore", run: str | None, context: CliContext) -> "Run":
    """Read a recorded run; print a warning for each line that cannot be read."""
    recorded = run_store.read(run)
    for warning in recorded.warnings:
        context.warn(warning)
    return recorded


def github_step(context: click.Context) -> "GitHubActions | None":
    """Return the step of GitHub Actions in which this process runs; None elsewhere.

    Until the command ends, no line of the output is a workflow command, whatever an agent answers.
    """
    from holodeck.lib.support.environment import process_variables

    variables = process_variables()
    if variables.get("GITHUB_ACTIONS") != "true":
        return None
    from holodeck.cli.github_actions import GitHubActions

    step = GitHubActions.of(variables)
    context.with_resource(step.commands_stopped())
    return step


def switch(flag: str, text: str, start: Callable[[click.Context], object]) -> Callable[[F], F]:
    """Add an option that has no YAML key, because a downloaded folder must not set it."""

    def apply(context: click.Context, _: click.Parameter, is_given: bool) -> None:
        if is_given:
            start(context)

    return click.option(
        flag,
        cls=GroupedOption,
        group="Input",
        is_flag=True,
        expose_value=False,
        callback=apply,
        help=text,
    )


def _allow_outside(context: click.Context) -> None:
    from holodeck.lib.support.safe_paths import allow_outside

    context.with_resource(allow_outside())


def _trust(context: click.Context) -> None:
    context.ensure_object(CliContext).trusts_endpoints = True


def _distrust(context: click.Context) -> None:
    from holodeck.lib.support.trust import untrusted

    context.with_resource(untrusted())


_OUTSIDE = "Allow paths outside the agent's folder."
allow_outside_option = switch("--allow-outside", _OUTSIDE, _allow_outside)
trust_option = switch("--trust", "Send to endpoints of .env files without asking.", _trust)
untrusted_option = switch("--untrusted", "Refuse code, commands, foreign hosts, ${VAR}.", _distrust)


def output_options(command: F) -> F:
    """Add `--output` and `--format`."""
    command = click.option(
        "--format",
        "report_format",
        cls=GroupedOption,
        group="Output",
        metavar="FORMAT",
        help="Format of --output, such as markdown or junit.",
    )(command)
    return output_option("Write a report (.md, .html, -); repeatable.")(command)


def output_option(description: str) -> Callable[[F], F]:
    return click.option(
        "--output",
        "-o",
        "outputs",
        cls=GroupedOption,
        group="Output",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=description,
    )


def check_inputs(
    targets: "Sequence[ReportTarget]", events: "Iterable[tuple[Path | None, str]]" = ()
) -> None:
    """Raise ConfigError if a report or events would go into a file that the command has read.

    `events` are pairs of a file for events and where it is named.
    """
    from holodeck.lib.support.safe_paths import refuse_input

    for target in targets:
        if target.stream is None:
            refuse_input(target.path, "--output", ["report"])
    for path, location in events:
        if path is not None:
            refuse_input(path, location, ["events"])


def report_targets(outputs: Sequence[Path], report_format: str | None) -> "list[ReportTarget]":
    """Return the reports to write. Raises ConfigError for a file that cannot be written.

    The files that the command reads from now on are noted, for `check_inputs`. For `-`, everything
    but the report goes to stderr from now on.
    """
    from uuid import uuid4

    from holodeck.lib.reports.formats import ReportTarget, check_writable, format_for
    from holodeck.lib.support.safe_paths import inputs_noted
    from holodeck.lib.ui.live import stdout_for_report

    context = click.get_current_context()
    context.with_resource(inputs_noted())

    if report_format is not None and not outputs:
        raise click.UsageError("--format needs a file to write; add --output FILE")
    if report_format is None:
        outputs = [
            Path(f"{_NEW_FILES[str(output)]}_{uuid4()}.{output}")
            if str(output) in _NEW_FILES
            else output
            for output in outputs
            if str(output) != _TERMINAL
        ]
    targets = []
    for output in outputs:
        if str(output) == _STDOUT:
            stream = context.with_resource(stdout_for_report())
            targets.append(ReportTarget(output, report_format or "markdown", output, stream))
            continue
        check_writable(output)
        format_of_file = format_for(output, report_format)
        targets.append(ReportTarget(output, format_of_file, output.absolute()))
    return targets


_STDOUT = "-"
_TERMINAL = "cli"
_NEW_FILES = {"html": "report", "json": "results"}
"""Formats that `--output` takes in place of a file, as AgenticAssure does, and the names of the new
files in the working folder."""


def check_formats(report_formats: Iterable[str]) -> None:
    """Raise ConfigError for a format that cannot show a comparison."""
    from holodeck.models.records.comparison import COMPARISON_FORMATS

    for report_format in report_formats:
        if report_format not in COMPARISON_FORMATS:
            raise ConfigError(
                "--format",
                f"{report_format!r} shows one run; a comparison is written as"
                f" {' or '.join(COMPARISON_FORMATS)}",
            )


def confirm_endpoints(agent: "Agent", context: CliContext) -> None:
    """Ask for consent to endpoints of `.env` files, and name hosts that are not a provider's own.

    Raises ConfigError without consent, or without a terminal to ask on.
    """
    from holodeck.config.environment import Environment
    from holodeck.config.trust import addresses_of_repository, other_hosts
    from holodeck.lib.support.environment import is_trusting
    from holodeck.lib.ui.live import echo

    is_trusted = context.trusts_endpoints or is_trusting()
    addresses = addresses_of_repository(agent, Environment.beside(agent.base_dir))
    for address, source in addresses if not is_trusted else ():
        finding = f"{source} leads requests to {address.shown}"
        _require_consent(agent, address.shown, finding, context)
    for address in other_hosts(agent):
        place = agent.location(*address.path)
        notice = f"Requests go to {address.shown}, not to a host of {address.provider} ({place})"
        if context.is_new_notice(f"host {address.shown}"):
            echo(context.clean(notice), err=True)


def _require_consent(agent: "Agent", host: str, finding: str, context: CliContext) -> None:
    from holodeck.lib.support.environment import data_dir
    from holodeck.lib.support.files import create_file
    from holodeck.lib.support.text import inert
    from holodeck.lib.ui.conversation import find_missing_terminal

    digest = hashlib.sha256(f"{agent.base_dir.resolve()}\0{host}".encode()).hexdigest()
    remembered = data_dir() / "trust" / digest
    if remembered.is_file():
        return
    if find_missing_terminal() is not None:
        raise ConfigError(
            finding,
            "your key, variables and texts would be sent there; if you trust it, run with --trust",
        )
    question = f"{finding}. Your key, variables and texts are sent there. Do you trust it?"
    if not click.confirm(inert(context.clean(question)), err=True):
        raise ConfigError(finding, "not trusted, so nothing was sent")
    try:
        create_file(remembered)
    except OSError as error:
        context.warn(f"the answer cannot be remembered: {remembered}: {error.strerror}")
