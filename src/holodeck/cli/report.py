"""`holodeck report`: the report of a recorded run, in any format, without running anything."""

import sys
from pathlib import Path

import click

from holodeck.cli.context import CliContext
from holodeck.cli.options import (
    agent_option,
    output_option,
    read_run,
    report_targets,
    run_store_of,
    write_reports,
)


@click.command()
@click.argument("run", default="last")
@click.option(
    "--format",
    "report_format",
    metavar="FORMAT",
    help="markdown (default on stdout), json, html, junit or codequality.",
)
@output_option("Write the report to a file instead; repeatable.")
@agent_option
@click.pass_context
def report(
    context: click.Context,
    run: str,
    report_format: str | None,
    outputs: tuple[Path, ...],
    agent: Path,
) -> None:
    """Report on RUN: an id, the beginning of one, `last`, or the path of a record.

    Nothing is run. The report of an interrupted run contains the results until then.
    """
    from holodeck.errors import ReportError
    from holodeck.lib.reports.formats import FORMATS
    from holodeck.lib.test_runner.recorded import report_of
    from holodeck.lib.ui.live import write_text

    cli_context = context.ensure_object(CliContext)
    targets = report_targets(outputs, report_format if outputs else None)
    render = FORMATS.load(report_format or "markdown", location="--format")
    found = report_of(read_run(run_store_of(agent), run, cli_context))
    shown = cli_context.redactor.redact_report(found)
    if not targets:
        write_text(sys.stdout, render(shown))
    failures = write_reports(shown, targets, cli_context)
    if failures:
        raise ReportError("\n".join(failures))
