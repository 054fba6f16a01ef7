"""Options that several commands share, and what the commands do with them."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holodeck.cli.context import CliContext
from holodeck.lib.ui.help import GroupedOption

if TYPE_CHECKING:
    from holodeck.lib.records.run_store import Run, RunStore
    from holodeck.models.config import ReportDetail
    from holodeck.models.test_result import TestReport

F = TypeVar("F", bound=Callable[..., Any])


def agent_option(command: F) -> F:
    """Add `--agent`: the agent whose recorded runs the command is about."""
    return click.option(
        "--agent",
        "-a",
        default="agent.yaml",
        show_default=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The agent.yaml, or its folder, whose runs to use.",
    )(command)


def run_store_of(agent: Path) -> "RunStore":
    """Return the runs recorded beside an agent.yaml; the file itself may be gone."""
    from holodeck.lib.records.run_store import RunStore

    return RunStore((agent if agent.is_dir() else agent.parent).absolute())


def read_run(run_store: "RunStore", run: str | None, context: CliContext) -> "Run":
    """Read a recorded run; print a warning for each line that cannot be read."""
    found = run_store.read(run)
    for warning in found.warnings:
        context.warn(warning)
    return found


def _switch(flag: str, text: str, start: Callable[[click.Context], object]) -> Callable[[F], F]:
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


def allow_outside_option(command: F) -> F:
    """Add `--allow-outside`, which permits paths outside the agent's folder."""

    def start(context: click.Context) -> None:
        from holodeck.lib.support.safe_paths import allow_outside

        context.with_resource(allow_outside())

    return _switch("--allow-outside", "Allow paths outside the agent's folder.", start)(command)


def trust_option(command: F) -> F:
    """Add `--trust`, which consents to endpoints of `.env` files."""

    def start(context: click.Context) -> None:
        context.ensure_object(CliContext).trusts_endpoints = True

    return _switch("--trust", "Send to endpoints of .env files without asking.", start)(command)


def untrusted_option(command: F) -> F:
    """Add `--untrusted`, for the configuration of a stranger."""

    def start(context: click.Context) -> None:
        from holodeck.lib.support.trust import untrusted

        context.with_resource(untrusted())

    text = "Refuse code, commands, foreign hosts, ${VAR}."
    return _switch("--untrusted", text, start)(command)


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
    return output_option("Write a report (.md, .json, .html); repeatable.")(command)


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
        refuse_input(target.path, "--output", ["report"])
    for path, location in events:
        if path is not None:
            refuse_input(path, location, ["events"])


@dataclass(frozen=True)
class ReportTarget:
    """A file to write the report to."""

    path: Path
    """As the user wrote it."""
    report_format: str
    file: Path
    """The absolute path: code under test may change the working directory."""


def report_targets(outputs: Sequence[Path], report_format: str | None) -> list[ReportTarget]:
    """Return the reports to write. Raises ConfigError for a file that cannot be written.

    The files that the command reads from now on are noted, for `check_inputs`.
    """
    from holodeck.lib.reports.formats import check_writable, format_for
    from holodeck.lib.support.safe_paths import inputs_noted

    click.get_current_context().with_resource(inputs_noted())

    if report_format is not None and not outputs:
        raise click.UsageError("--format needs a file to write; add --output FILE")
    if report_format is None:
        outputs = [_new_file(one) for one in outputs if str(one) != _TERMINAL]
    targets = [ReportTarget(one, format_for(one, report_format), one.absolute()) for one in outputs]
    for target in targets:
        check_writable(target.path)
    return targets


_TERMINAL = "cli"
_NEW_FILES = {"html": "report", "json": "results"}
"""Formats that `--output` takes in place of a file, as AgenticAssure does, and what they name."""


def _new_file(output: Path) -> Path:
    """Return the path, or for a format alone that of a new file in the working folder."""
    stem = _NEW_FILES.get(str(output))
    if stem is None:
        return output
    from uuid import uuid4

    return Path(f"{stem}_{uuid4()}.{output}")


def write_reports(
    report: "TestReport",
    targets: Sequence[ReportTarget],
    context: CliContext,
    detail: "ReportDetail | None" = None,
) -> list[str]:
    """Write every report that can be written; return an error message for each of the others."""
    from holodeck.lib.reports.formats import write_report, write_report_text

    def write(target: ReportTarget) -> None:
        if target.report_format != "markdown":
            write_report(target.report_format, report, target.file, target.path)
            return
        text = render_report(report, target.report_format, context, detail)
        write_report_text(text, target.file, target.path)

    return write_each(targets, write, context)


def render_report(
    report: "TestReport", report_format: str, context: CliContext, detail: "ReportDetail | None"
) -> str:
    """Return the text of a report; `detail` is about Markdown, and None means its default."""
    from holodeck.lib.reports.formats import FORMATS

    render = FORMATS.load(report_format, location="--format")
    if report_format != "markdown":
        return render(report)
    from holodeck.lib.test_runner.reporter import generate_markdown_report

    links = None if context.github is None else context.github.links
    return generate_markdown_report(report, detail or "all", links)


def print_report(text: str, report_format: str) -> None:
    """Write a report to stdout so that no text in it is obeyed, and each format stays valid."""
    from holodeck.lib.support.text import inert, inert_json, inert_xml
    from holodeck.lib.ui.live import write_raw

    # The texts of a page are references or compressed; scripts and styles must stay as they are.
    escapes: dict[str, Callable[[str], str]]
    escapes = {"json": inert_json, "codequality": inert_json, "junit": inert_xml, "html": str}
    write_raw(sys.stdout, escapes.get(report_format, inert)(text))


def write_each(
    targets: Sequence[ReportTarget], write: Callable[[ReportTarget], None], context: CliContext
) -> list[str]:
    """Call `write` for each target; return an error message for each that cannot be written."""
    from holodeck.errors import ReportError
    from holodeck.lib.ui.live import write_text

    failures = []
    for target in targets:
        try:
            write(target)
        except ReportError as error:
            failures.append(str(error))
        else:
            write_text(sys.stdout, context.clean(f"Report saved to {target.path}\n"))
    return failures
