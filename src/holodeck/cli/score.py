"""`holodeck score`: grades the responses of a recorded run again, without calling the agent."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cli.context import CliContext
from holodeck.cli.github_actions import github_actions
from holodeck.cli.options import (
    allow_outside_option,
    check_inputs,
    output_options,
    read_run,
    report_targets,
    run_store_of,
    trust_option,
    untrusted_option,
)

if TYPE_CHECKING:
    from holodeck.lib.test_runner.rescore import RescoredReport
    from holodeck.models.agent import Agent
    from holodeck.models.config import ExecutionConfig
    from holodeck.models.test_result import TestReport

_MAX_NAMES = 10
_SAME_KEYS = ("suite", "name", "input", "history", "script")


@click.command()
@click.argument("run", default="last")
@click.argument("agent_config", default="agent.yaml", type=click.Path())
@output_options
@allow_outside_option
@trust_option
@untrusted_option
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
    """Grade the responses of RUN with the metrics and expectations of AGENT_CONFIG.

    RUN is an id, the beginning of one, `last`, or the path of a record. The agent is not called and
    the record does not change. Exit codes are those of `holodeck test`; 5 also means that cases
    have no recorded response.
    """
    from holodeck.errors import ReportError
    from holodeck.lib.processes.process_exit import process_exit_forbidden
    from holodeck.lib.records.run_store import is_of_second_agent
    from holodeck.lib.reports.summary import exit_code
    from holodeck.lib.test_runner.judge_trust import RunTrust
    from holodeck.lib.test_runner.report_files import write_reports
    from holodeck.lib.test_runner.rescore import rescore
    from holodeck.lib.ui.streams import protected_streams

    cli_context = context.ensure_object(CliContext)
    targets = report_targets(outputs, report_format)
    agent, settings = _load_agent(agent_config, cli_context)
    recorded = read_run(run_store_of(agent.base_dir), run, cli_context)
    check_inputs(targets)
    if is_of_second_agent(recorded):
        cli_context.warn(
            f"run {recorded.id} is that of the second agent of a comparison; metrics that need"
            " instructions or tools get those of the first"
        )
    github = github_actions()
    if github is not None:  # of what graders print
        context.with_resource(github.commands_stopped())
    with protected_streams(), process_exit_forbidden():
        graded = asyncio.run(
            rescore(agent, recorded, cli_context.redactor.redact, RunTrust.of(settings))
        )
    shown = cli_context.redactor.redact_report(graded.report)
    _print_results(shown, verbose=verbose)
    _warn_of_differences(graded, cli_context)
    failures = write_reports(shown, targets, cli_context.clean, settings.report_detail)
    if failures:
        raise ReportError("\n".join(failures))
    context.exit(exit_code(shown))


def _load_agent(agent_config: str, context: CliContext) -> "tuple[Agent, ExecutionConfig]":
    from holodeck.cli.trust import confirm_endpoints
    from holodeck.config.check import check, raise_on_errors
    from holodeck.config.loader import load_agent_with_config
    from holodeck.config.secrets import collect

    agent, settings, loader = load_agent_with_config(agent_config)
    context.protect(collect(agent, loader.environment(agent.base_dir)))
    raise_on_errors(check(agent))
    confirm_endpoints(agent, context)
    return agent, settings


def _print_results(report: "TestReport", *, verbose: bool) -> None:
    from holodeck.lib.test_runner.progress import ProgressIndicator
    from holodeck.lib.ui.live import write_text

    progress = ProgressIndicator(report.planned_tests or 0, verbose=verbose)
    progress.selection = report.selection
    for result in report.results:
        progress.update(result)
        lines = [progress.get_progress_line(), *progress.get_reason_lines()]
        write_text(sys.stdout, "\n".join(lines) + "\n")
    parts = (progress.get_failures(), progress.get_summary())
    write_text(sys.stdout, "".join(f"{part}\n" for part in parts if part))


def _warn_of_differences(graded: "RescoredReport", context: CliContext) -> None:
    """Warn of cases without a recorded response, and of responses without a case."""
    from holodeck.lib.support.text import plural

    no_case = f"no case with the same {', '.join(_SAME_KEYS)} and context"
    for one, several, problem, names in (
        ("case has", "cases have", "no recorded response", graded.ungraded),
        ("recorded response has", "recorded responses have", no_case, graded.unused),
    ):
        if names:
            listed = ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
            context.warn(f"{plural(len(names), one, several)} {problem}: {listed}")
