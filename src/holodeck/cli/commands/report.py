"""`holodeck report`: the report of recorded runs, in any format, without running anything."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from holodeck.cli.context import CliContext
from holodeck.cli.options import (
    agent_option,
    check_inputs,
    github_step,
    output_option,
    read_run,
    report_targets,
    run_store_of,
)
from holodeck.config.flags import option
from holodeck.errors import ConfigError, ExitCode, ReportError
from holodeck.lib.records.run_store import RunStore
from holodeck.lib.reports.formats import FORMATS, print_report, render_report, write_reports
from holodeck.lib.reports.merge import NamedReport, merge_reports
from holodeck.lib.reports.summary import exit_code
from holodeck.lib.support.text import plural
from holodeck.lib.test_runner.grading.recorded import is_report, read_report, report_of
from holodeck.lib.ui.live import echo
from holodeck.models.config import ReportDetail, setting_fields
from holodeck.models.records.record import Baseline
from holodeck.models.test_result import TestReport


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--merge", is_flag=True, help="Join the runs: of shards, and of several agents.")
@click.option(
    "--format",
    "report_format",
    metavar="FORMAT",
    help="markdown (default on stdout), json, html, junit or codequality.",
)
@output_option("Write the report to a file instead; repeatable.")
@option(setting_fields()["report_detail"])
@agent_option
@click.pass_context
def report(
    context: click.Context,
    /,
    runs: tuple[str, ...],
    merge: bool,
    report_format: str | None,
    outputs: tuple[Path, ...],
    report_detail: ReportDetail | None,
    agent: Path,
) -> None:
    """Report on RUN: an id, a tag, `last`, `previous`, or the path of a record or JSON report.

    Nothing is run. The report of an interrupted run contains the results until then. With --merge,
    the exit code is that of `holodeck test` for all runs together; without all shards, it is never
    0.
    """
    if len(runs) > 1 and not merge:
        raise click.UsageError(f"{len(runs)} runs are named; add --merge to join them")
    if merge and not runs:
        raise click.UsageError("--merge needs the runs to join; name them")
    cli_context = context.ensure_object(CliContext)
    targets = report_targets(outputs, report_format if outputs else None)
    github = github_step(context) if targets else None
    links = None if github is None else github.links
    FORMATS.load(report_format or "markdown", location="--format")
    store = run_store_of(agent)
    named = [read_named(run, store, cli_context) for run in runs or ("last",)]
    whole, code = _merged(named, cli_context) if merge else (named[0].report, ExitCode.PASSED)
    check_inputs(targets)
    shown = cli_context.redactor.redact_report(whole)
    if not targets:
        text = render_report(shown, report_format or "markdown", report_detail)
        print_report(text, report_format or "markdown", sys.stdout)
    failures = write_reports(shown, targets, cli_context.clean, report_detail, links)
    if github is not None and merge:
        github.summarize(shown)
    if failures:
        raise ReportError("\n".join(failures))
    context.exit(code)


def read_named(name: str, store: RunStore, context: CliContext) -> NamedReport:
    """Return the report of a run, or that in a JSON file. Raises ConfigError."""
    if not is_report(name):
        run = read_run(store, name, context)
        return NamedReport(run.id if name == run.id else f"{name} ({run.id})", report_of(run))
    report = read_report(Path(name))
    if isinstance(report, Baseline):
        raise ConfigError(name, "is a baseline, which has no answers; name a run")
    return NamedReport(name, report)


def _merged(named: Sequence[NamedReport], context: CliContext) -> tuple[TestReport, ExitCode]:
    """Return the report of all runs, and their exit code; say what is missing."""
    report = merge_reports(named)
    tests = plural(report.ran, "test")
    lines = [*report.notes, f"{report.summary.passed} of {tests} passed"]
    if report.stopped is not None:
        lines.append(f"NOT COMPLETE: {report.stopped}")
    for line in lines:
        echo(context.brief(line), err=True)
    return report, exit_code(report)
