"""`holodeck score`: grade the answers of a recorded run again, without calling the agent."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cli.allow_outside import allow_outside_option
from holodeck.cli.cli_context import CliContext
from holodeck.cli.report_output import output_options, report_targets, write_reports
from holodeck.cli.run_lookup import read_with_warnings, run_store_of
from holodeck.lib.process_exit import process_exit_forbidden

if TYPE_CHECKING:
    from holodeck.lib.test_runner.rescore import RescoredReport
    from holodeck.models.agent import Agent

_MOST_NAMES = 10
_SAME = ("suite", "name", "input", "history", "script")


@click.command()
@click.argument("run", default="last")
@click.argument("agent_config", default="agent.yaml", type=click.Path())
@output_options
@allow_outside_option
@click.option("--verbose", "-v", is_flag=True, help="Show every metric of every test.")
@click.pass_context
def score(
    context: click.Context,
    run: str,
    agent_config: str,
    outputs: tuple[Path, ...],
    report_format: str | None,
    verbose: bool,
) -> None:
    """Grade the answers of RUN with the metrics and expectations of AGENT_CONFIG.

    RUN is an id, the beginning of one, `last`, or the path of a record. The agent is not called and
    the record stays as it is. Exit codes are those of `holodeck test`; 5 also tells that cases have
    no recorded answer.
    """
    from holodeck.cli.streams import streams_kept
    from holodeck.errors import ReportError
    from holodeck.lib.test_runner.rescore import rescore
    from holodeck.lib.test_runner.summary import exit_code

    invocation = context.ensure_object(CliContext)
    targets = report_targets(outputs, report_format)
    agent = _loaded(agent_config, invocation)
    recorded = read_with_warnings(run_store_of(agent.base_dir), run, invocation)
    with streams_kept(), process_exit_forbidden():
        graded = asyncio.run(rescore(agent, recorded, invocation.redactor.redact))
    graded = _told(graded, invocation, verbose=verbose)
    failures = write_reports(graded.report, targets, invocation)
    if failures:
        raise ReportError("\n".join(failures))
    context.exit(exit_code(graded.report))


def _loaded(agent_config: str, invocation: CliContext) -> "Agent":
    from holodeck.config.check import check, raise_on_errors
    from holodeck.config.loader import load_agent_with_config
    from holodeck.config.secrets import collect

    agent, _, loader = load_agent_with_config(agent_config)
    invocation.protect(collect(agent, loader.environment(agent.base_dir)))
    raise_on_errors(check(agent))
    return agent


def _told(graded: "RescoredReport", invocation: CliContext, *, verbose: bool) -> "RescoredReport":
    """The same without secrets, after it has been shown."""
    from dataclasses import replace

    from holodeck.lib.test_runner.progress import ProgressIndicator
    from holodeck.lib.text import plural
    from holodeck.lib.ui.live import put

    shown = invocation.redactor.redact_report(graded.report)
    progress = ProgressIndicator(shown.planned_tests or 0, verbose=verbose)
    progress.selection = shown.selection
    for result in shown.results:
        progress.update(result)
        lines = [progress.get_progress_line(), *progress.get_reason_lines()]
        put(sys.stdout, "\n".join(lines) + "\n")
    parts = (progress.get_failures(), progress.get_summary())
    put(sys.stdout, "".join(f"{part}\n" for part in parts if part))
    unused = f"no case with the same {', '.join(_SAME)} and context"
    for one, several, what, names in (
        ("case has", "cases have", "no recorded answer", graded.ungraded),
        ("recorded answer has", "recorded answers have", unused, graded.unused),
    ):
        if names:
            listed = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
            found = f"{plural(len(names), one, several)} {what}: {listed}"
            click.echo(invocation.clean(f"WARNING: {found}"), err=True)
    return replace(graded, report=shown)
