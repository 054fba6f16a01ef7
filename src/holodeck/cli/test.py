"""`holodeck test`: run the test cases of an agent.yaml, show and report what came out."""

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.invocation import Invocation
from holodeck.config.flags import cli_config, cli_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holodeck.lib.test_runner.executor import TestExecutor
    from holodeck.lib.test_runner.progress import ProgressIndicator
    from holodeck.lib.ui.live import LiveLine
    from holodeck.models.agent import Agent
    from holodeck.models.config import ExecutionConfig
    from holodeck.models.test_result import TestReport

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Target:
    """A file that the report goes to."""

    path: Path
    report_format: str


@click.command()
@click.argument("agent_config", default="agent.yaml", type=click.Path())
@click.option(
    "--output",
    "-o",
    "outputs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the report to FILE; .md and .json tell the format. May be given several times.",
)
@click.option(
    "--format",
    "report_format",
    metavar="FORMAT",
    help="Format of an --output whose name does not tell it: markdown or json.",
)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run only the first N test cases.",
)
@cli_options()
@click.pass_context
def test(
    context: click.Context,
    /,
    agent_config: str,
    outputs: tuple[Path, ...],
    report_format: str | None,
    limit: int | None,
    **options: Any,
) -> None:
    """Run the test cases of AGENT_CONFIG and exit with what came of it.

    Results go to stdout, logs to stderr. Exit codes: 0 all passed, 1 a test failed, 2 the
    configuration is wrong, 3 the agent could not be run, 4 a metric could not be computed,
    5 nothing was tested, 130 interrupted. Of several, the first of 3, 4, 1, 5 is told.
    """
    from holodeck.lib.test_runner.summary import exit_code

    invocation = context.ensure_object(Invocation)
    targets = _targets(outputs, report_format)
    agent, settings = _loaded(agent_config, cli_config(options), invocation)
    report = _run(agent_config, _limited(agent, limit), settings, targets, invocation)
    context.exit(exit_code(report))


test.__test__ = False  # type: ignore[attr-defined]  # or pytest takes it for a test


def _targets(outputs: "Sequence[Path]", report_format: str | None) -> list[Target]:
    """The reports to write, all of which look possible. Raises ConfigError."""
    from holodeck.lib.test_runner.reports import check_writable, format_for

    if report_format is not None and not outputs:
        raise click.UsageError("--format says how to write a report; add --output FILE")
    targets = [Target(path, format_for(path, report_format)) for path in outputs]
    for target in targets:
        check_writable(target.path)
    return targets


def _loaded(
    agent_config: str, given: "ExecutionConfig", invocation: Invocation
) -> "tuple[Agent, ExecutionConfig]":
    """The agent, free of errors that can be known before the run, and its settings."""
    from holodeck.cli.logs import start_logging
    from holodeck.config.check import check, raise_on_errors
    from holodeck.config.loader import ConfigLoader, agent_file, load_agent_with_config
    from holodeck.config.providers import missing_key
    from holodeck.config.secrets import collect
    from holodeck.errors import ConfigError

    env = ConfigLoader().environment(agent_file(agent_config).parent)
    invocation.protect(collect(None, env))
    start_logging(invocation.verbosity, env, invocation.clean)
    agent, settings, _ = load_agent_with_config(agent_config, given)
    invocation.protect(collect(agent, env))
    _log_sources(settings)
    findings = check(agent)
    raise_on_errors(findings)
    lacking = missing_key(agent)
    if lacking is not None:  # only a warning to `validate`, which may run where no key is
        raise ConfigError(f"{agent.place('model')}: model", lacking)
    for finding in findings:
        logger.warning("%s: %s: %s", finding.place, finding.path, finding.message)
    return agent, settings


def _log_sources(settings: "ExecutionConfig") -> None:
    """Tell where each setting came from; those that somebody set with -v, all of them with -vv."""
    for name in type(settings).model_fields:
        source = settings.source_of(name)
        level = logging.DEBUG if source == "default" else logging.INFO
        logger.log(level, "setting %s = %s (%s)", name, getattr(settings, name), source)


def _limited(agent: "Agent", limit: int | None) -> "Agent":
    """The agent with its first test cases only."""
    cases = agent.test_cases or []
    if limit is None or limit >= len(cases):
        return agent
    click.echo(f"Running the first {limit} of {len(cases)} test cases (--limit)", err=True)
    return agent.model_copy(update={"test_cases": cases[:limit]})


def _run(
    agent_config: str,
    agent: "Agent",
    settings: "ExecutionConfig",
    targets: "Sequence[Target]",
    invocation: Invocation,
) -> "TestReport":
    """Run, then show the summary and write the reports; also of a run that broke half-way."""
    from holodeck.lib.test_runner.executor import TestExecutor
    from holodeck.lib.test_runner.progress import ProgressIndicator

    progress = ProgressIndicator(
        len(agent.test_cases or []), quiet=bool(settings.quiet), verbose=bool(settings.verbose)
    )
    executor = TestExecutor(agent_config, agent_config=agent, resolved_execution_config=settings)
    try:
        report = _watched(executor, progress, invocation)
    except Exception:
        _finish(executor.report(interrupted=True), progress, targets, invocation)
        raise
    return _finish(report, progress, targets, invocation)


def _watched(
    executor: "TestExecutor", progress: "ProgressIndicator", invocation: Invocation
) -> "TestReport":
    """Run the tests, each result shown as it comes."""
    from holodeck.cli.running import run_to_report
    from holodeck.lib.observability import initialize_observability, shutdown_observability
    from holodeck.lib.ui.live import LiveLine
    from holodeck.models.observability import ObservabilityConfig

    agent = executor.agent_config
    traces = initialize_observability(agent.observability or ObservabilityConfig(), agent.name)
    live = LiveLine(progress.get_live_line, progress.get_heartbeat_line, enabled=not progress.quiet)
    _connect(executor, progress, live, invocation)
    try:
        with live:
            return run_to_report(executor, lambda: _say_stopping(live))
    finally:
        shutdown_observability(traces)


def _connect(
    executor: "TestExecutor",
    progress: "ProgressIndicator",
    live: "LiveLine",
    invocation: Invocation,
) -> None:
    """Let the progress follow the executor; what it is told holds no secrets."""
    redactor = invocation.redactor

    def started(case: Any) -> None:
        progress.start_test(redactor.redact(case.name or "unnamed"))

    def finished(result: Any) -> None:
        progress.update(redactor.redact_report(result))
        line = progress.get_progress_line()
        if line:
            live.write("\n".join([line, *progress.get_reason_lines()]))

    executor.on_test_start = started
    executor.progress_callback = finished


def _say_stopping(live: "LiveLine") -> None:
    with live.paused():
        click.echo("Interrupted: stopping; Ctrl-C again stops at once", err=True)


def _finish(
    report: "TestReport",
    progress: "ProgressIndicator",
    targets: "Sequence[Target]",
    invocation: Invocation,
) -> "TestReport":
    """Show the summary and write every report that can be written."""
    from holodeck.errors import ReportError
    from holodeck.lib.test_runner.reports import write_report
    from holodeck.lib.ui.live import put

    shown = invocation.redactor.redact_report(report)
    put(sys.stdout, progress.get_summary() + "\n")
    failures = []
    for target in targets:
        try:
            write_report(shown, target.path, target.report_format)
        except ReportError as error:
            failures.append(str(error))
        else:
            put(sys.stdout, invocation.clean(f"Report saved to {target.path}\n"))
    if failures:
        raise ReportError("\n".join(failures))
    return report
