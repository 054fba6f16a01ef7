"""`holodeck report`: the report of a recorded run, in any format, without running anything."""

import sys
from pathlib import Path

import click

from holodeck.cli.cli_context import CliContext
from holodeck.cli.report_output import output_option, report_targets, write_reports
from holodeck.cli.run_lookup import agent_option, read_with_warnings, run_store_of


@click.command()
@click.argument("run", default="last")
@click.option(
    "--format",
    "report_format",
    metavar="FORMAT",
    help="markdown (the default on stdout) or json.",
)
@output_option("Write the report to FILE, not to stdout. May be given several times.")
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

    Nothing is run. Of a run that was killed, what had finished is reported.
    """
    from holodeck.errors import ReportError
    from holodeck.lib.test_runner.recorded import report_of
    from holodeck.lib.test_runner.reports import FORMATS
    from holodeck.lib.ui.live import put

    invocation = context.ensure_object(CliContext)
    targets = report_targets(outputs, report_format if outputs else None)
    render = FORMATS.load(report_format or "markdown", where="--format")
    made = report_of(read_with_warnings(run_store_of(agent), run, invocation))
    shown = invocation.redactor.redact_report(made)
    if not targets:
        put(sys.stdout, render(shown))
    failures = write_reports(shown, targets, invocation)
    if failures:
        raise ReportError("\n".join(failures))
