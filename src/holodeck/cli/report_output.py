"""The files that reports go to, whichever command makes the report."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from holodeck.cli.cli_context import CliContext
    from holodeck.models.test_result import TestReport

F = TypeVar("F", bound=Callable[..., Any])


def output_options(command: F) -> F:
    """`--output` and `--format`, as the commands take them that show their results as they come."""
    named = "Format of an --output whose name does not tell it: markdown or json."
    command = click.option("--format", "report_format", metavar="FORMAT", help=named)(command)
    told = "Write the report to FILE; .md and .json tell the format. May be given several times."
    return output_option(told)(command)


def output_option(told: str) -> Callable[[F], F]:
    """`--output FILE`, as often as wanted, with the words of its help."""
    return click.option(
        "--output",
        "-o",
        "outputs",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=told,
    )


@dataclass(frozen=True)
class ReportTarget:
    """A file that the report goes to."""

    path: Path
    """As the user wrote it."""
    report_format: str
    file: Path
    """The same, absolute: code under test may change the working directory."""


def report_targets(outputs: Sequence[Path], report_format: str | None) -> list[ReportTarget]:
    """The reports to write, all of which look possible. Raises ConfigError."""
    from holodeck.lib.test_runner.reports import check_writable, format_for

    if report_format is not None and not outputs:
        raise click.UsageError("--format says how to write a report; add --output FILE")
    targets = [ReportTarget(one, format_for(one, report_format), one.absolute()) for one in outputs]
    for target in targets:
        check_writable(target.path)
    return targets


def write_reports(
    shown: "TestReport", targets: Sequence[ReportTarget], invocation: "CliContext"
) -> list[str]:
    """Write every report that can be written; why the others could not."""
    from holodeck.errors import ReportError
    from holodeck.lib.test_runner.reports import write_report
    from holodeck.lib.ui.live import put

    failures = []
    for target in targets:
        try:
            write_report(shown, target.file, target.report_format, target.path)
        except ReportError as error:
            failures.append(str(error))
        else:
            put(sys.stdout, invocation.clean(f"Report saved to {target.path}\n"))
    return failures
