"""`holodeck test --against`: the same cases on two agents, displayed, recorded and compared."""

import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holodeck import __version__
from holodeck.cli.agent_paths import AgentTarget
from holodeck.cli.context import CliContext
from holodeck.cli.options import ReportTarget, write_each
from holodeck.cli.test_run import (
    ResumedRun,
    close_record,
    find_run,
    open_display,
    repetition_args,
    resume_run,
    run_displayed,
)
from holodeck.errors import ConfigError, ExitCode, HoloDeckError, ReportError
from holodeck.lib.support.text import inert_json
from holodeck.lib.ui.live import echo, write_raw
from holodeck.models.agent import AGENT_KEYS, BUILT_IN_BACKENDS, Agent

if TYPE_CHECKING:
    from holodeck.config.checks.findings import Finding
    from holodeck.lib.compare.against import AgentComparison
    from holodeck.lib.records.recorder import Recorder
    from holodeck.lib.records.run_store import Run
    from holodeck.lib.reports.against import FailOn
    from holodeck.lib.test_runner.executor import TestExecutor
    from holodeck.lib.test_runner.progress import ProgressIndicator
    from holodeck.lib.ui.live import LiveLine
    from holodeck.models.comparison import ComparisonReport
    from holodeck.models.config import ExecutionConfig
    from holodeck.models.selection import Selection
    from holodeck.models.test_case import TestCaseModel
    from holodeck.models.test_result import TestResult

logger = logging.getLogger(__name__)

BACKEND_PREFIX = "backend="
"""Begins a value of `--against` that is no file."""


@dataclass(frozen=True)
class SecondAgent:
    """The agent of `--against`."""

    argument: str
    """As the user wrote it."""
    agent: Agent
    """As its file describes it; its tests are not used."""
    keys: tuple[str, ...]
    """The keys that its file, or the command line, contains of the agent."""

    def with_tests_of(self, first: Agent) -> Agent:
        from holodeck.lib.compare.against import with_tests_of

        return with_tests_of(first, self.agent, self.keys)


def load_second_agent(argument: str, first: Agent, context: CliContext) -> SecondAgent:
    """Return the agent of `--against`. Raises ConfigError."""
    from holodeck.config.cases.suite_files import is_suite_file, is_yaml
    from holodeck.config.loader import ConfigLoader
    from holodeck.config.secrets import collect

    if argument.startswith(BACKEND_PREFIX):
        return _with_backend(argument, first)
    if ":" in argument and not is_yaml(argument) and not Path(argument).exists():
        raise ConfigError("--against", f"no file {argument!r}; write '{BACKEND_PREFIX}{argument}'")
    if is_suite_file(argument):
        raise ConfigError("--against", f"{argument!r} is a suite; name the agent.yaml of an agent")
    loader = ConfigLoader()
    agent = loader.load_agent_yaml(argument)
    context.protect(collect(agent, loader.environment(agent.base_dir)))
    return SecondAgent(argument, agent, AGENT_KEYS)


def _with_backend(argument: str, first: Agent) -> SecondAgent:
    """Return the first agent with another backend."""
    from holodeck.config.loader import ConfigLoader

    backend = argument.removeprefix(BACKEND_PREFIX)
    if backend not in BUILT_IN_BACKENDS:
        first = first.model_copy(update={"tools": None})  # such a backend has its own
    try:
        agent = ConfigLoader().with_backend(first, backend)
    except ConfigError as error:
        raise ConfigError(f"--against {argument}", error.message) from error
    return SecondAgent(argument, agent.with_locator(_CommandLine()), ("backend",))


def check_formats(targets: Sequence[ReportTarget]) -> None:
    """Raise ConfigError for a format that cannot show a comparison."""
    from holodeck.models.comparison import COMPARISON_FORMATS

    for target in targets:
        if target.report_format not in COMPARISON_FORMATS:
            raise ConfigError(
                "--format",
                f"{target.report_format!r} shows one run; a comparison is written as"
                f" {' or '.join(COMPARISON_FORMATS)}",
            )


def check_second_agent(
    second: SecondAgent,
    first: Agent,
    settings: "ExecutionConfig",
    findings: "Sequence[Finding]",
) -> None:
    """Raise ConfigError for every error that can be found without a run; log warnings.

    `findings` are those about the first agent, which are not logged again.
    """
    from holodeck.config.checks.agent import check_before_run, log_findings
    from holodeck.lib.compare.against import unused_keys

    known = {(one.path, one.message) for one in findings}
    of_second = check_before_run(second.with_tests_of(first), settings)
    log_findings(
        [
            one
            for one in of_second
            if (one.path, one.message) not in known and one.path != "evaluations.model"
        ]
    )
    if second.keys != AGENT_KEYS:
        return  # it has no file
    unused = unused_keys(first, second.agent, settings)
    if unused:
        logger.warning(
            "%s: not used: %s; both agents run with those of the first",
            second.argument,
            ", ".join(unused),
        )


class _CommandLine:
    """Locates what the command line says."""

    def location(self, path: tuple[str | int, ...]) -> str:  # noqa: ARG002 - a Locator
        return "--against"

    def source_path(self, path: tuple[str | int, ...]) -> tuple[str | int, ...]:
        return path


@dataclass
class ComparisonRun:
    """What to compare and how, and the state of the run."""

    target: AgentTarget
    agent: Agent
    second: SecondAgent
    settings: "ExecutionConfig"
    report_targets: Sequence[ReportTarget]
    context: CliContext
    selection: "Selection | None" = None
    """None if all cases run."""
    resumed: tuple[ResumedRun, ResumedRun] | None = None
    fail_on: "FailOn | None" = None

    recorders: "list[Recorder]" = field(default_factory=list, init=False)
    """Of the first and the second agent; empty without a record."""
    is_terminated: bool = field(default=False, init=False)
    """Whether SIGTERM, not Ctrl-C, interrupted the run."""
    _pairs: "_PairDisplay | None" = field(default=None, init=False)
    """Where pairs of results are displayed, once they are."""

    def run(self) -> int:
        """Run the cases, print the comparison and write the reports, even after an error."""
        from holodeck.lib.compare.against import AgentComparison
        from holodeck.lib.test_runner.progress import ProgressIndicator

        progress = ProgressIndicator(
            2 * len(self.agent.test_cases or []),
            quiet=bool(self.settings.quiet),
            verbose=bool(self.settings.verbose),
        )
        agents = (self.agent, self.second.with_tests_of(self.agent))
        sources = (self.target.path, self.second.argument)
        for resumed in self.resumed or ():
            for result in resumed.results.values():
                progress.update(result)
        first, second = (
            self._executor(source, agent, progress, at)
            for at, (source, agent) in enumerate(zip(sources, agents, strict=True))
        )
        comparison = AgentComparison(first, second, sources)
        if self.settings.record and self.agent.test_cases:
            self._start_records(agents)
        try:
            report = self._execute(comparison, progress)
        except Exception as error:
            code = error.exit_code if isinstance(error, HoloDeckError) else ExitCode.EXECUTION
            self._finish(comparison.report(interrupted=True), code)
            raise
        return self._finish(report, self._exit_code(report))

    def _executor(
        self, source: str, agent: Agent, progress: "ProgressIndicator", at: int
    ) -> "TestExecutor":
        """Return what runs one of the agents; its results go to its record and the display."""
        from holodeck.lib.reports.recap import case_label
        from holodeck.lib.test_runner.executor import TestExecutor
        from holodeck.lib.test_runner.options import RunOptions

        redactor = self.context.redactor

        def on_test_start(case: "TestCaseModel") -> None:
            name = case.name and redactor.redact(case.name)
            progress.start_test(case_label(name, redactor.redact(case.user_input)))

        def on_result(index: int, result: "TestResult") -> None:
            if self.recorders:  # before it is displayed, in case the process is killed
                self.recorders[at].add(index, result)
            progress.update(result)
            if self._pairs is not None:
                self._pairs.show(index)

        return TestExecutor(
            source,
            agent_config=agent,
            resolved_execution_config=self.settings,
            on_test_start=on_test_start,
            options=RunOptions(
                carried_over=self.resumed[at].results if self.resumed else {},
                selection=self.selection,
                run_id=lambda: self.recorders[at].id if self.recorders else None,
                is_checked=True,  # both agents were, before the first case runs
                clean=redactor.redact_report,
                on_result=on_result,
            ),
        )

    def _start_records(self, agents: Sequence[Agent]) -> None:
        """Start a record for each agent, each with the id of the other."""
        from holodeck.lib.records.fingerprint import fingerprint_of
        from holodeck.lib.records.recorder import Recorder
        from holodeck.models.record import ComparedWith

        # That of the second agent is the older one, so that `last` means the first agent's.
        second, first = (Recorder(one, fingerprint_of(one)) for one in reversed(agents))
        first.compared_with = ComparedWith(run=second.id, is_second=False)
        second.compared_with = ComparedWith(run=first.id, is_second=True)
        self.recorders = [first, second]
        for at, recorder in enumerate(self.recorders):
            resumed = self.resumed[at] if self.resumed else None
            recorder.begin(
                (self.target.path, self.second.argument)[at],
                self.settings,
                self.context.redactor,
                version=__version__,
                selection=self.selection,
                resumes=resumed.id if resumed else None,
                carried_over=resumed.results if resumed else None,
            )

    def _execute(
        self, comparison: "AgentComparison", progress: "ProgressIndicator"
    ) -> "ComparisonReport":
        """Run the cases; record each result, and display each pair as soon as it is complete."""
        with open_display(self.agent, self.context, progress) as live:
            self._pairs = _PairDisplay(comparison, self.context, progress, live)
            if self.resumed is not None:
                first, second = self.resumed
                self._pairs.shown = len(first.results.keys() & second.results.keys())
            report, self.is_terminated = run_displayed(comparison, live, progress, self.context)
        return report

    def _exit_code(self, report: "ComparisonReport") -> ExitCode:
        from holodeck.lib.reports.against import comparison_exit_code

        code = comparison_exit_code(report, self.fail_on)
        is_terminated = code is ExitCode.INTERRUPTED and self.is_terminated
        return ExitCode.TERMINATED if is_terminated else code

    def _finish(self, report: "ComparisonReport", code: ExitCode) -> int:
        """Print the comparison, close the records and write every report that can be written."""
        from holodeck.lib.reports.against import render_terminal
        from holodeck.lib.reports.formats import write_report_text

        shown = self.context.redactor.redact_report(report)
        text = render_terminal(shown, verbose=bool(self.settings.verbose))
        echo(self.context.clean(text))
        if report.regressions and self.fail_on is None:
            echo("The exit code ignores the regressions; add --fail-on regression", err=True)
        record_errors = []
        for recorder, agent in zip(self.recorders, (shown.first, shown.second), strict=False):
            record_errors += close_record(recorder, agent.report, code)

        def write(target: ReportTarget) -> None:
            write_report_text(shown.rendered(target.report_format), target.file, target.path)

        failures = write_each(self.report_targets, write, self.context)
        if record_errors and len(failures) == len(self.report_targets):
            echo("no file could be written; the comparison as JSON:", err=True)
            write_raw(sys.stderr, inert_json(shown.to_json()))
        self._print_resume_command(report)
        failures += record_errors
        if failures:
            raise ReportError("\n".join(failures))
        return code

    def _print_resume_command(self, report: "ComparisonReport") -> None:
        reports = (report.first.report, report.second.report)
        left_out = any(
            one.skipped_by not in {None, "skip"} for report in reports for one in report.results
        )
        is_whole = not any(one.interrupted or one.stopped for one in reports) and not left_out
        is_broken = any(one.failure is not None for one in self.recorders)
        if not self.recorders or is_broken or is_whole or not any(one.ran for one in reports):
            return
        args = ["holodeck", "test", *self.target.args, "--against", self.second.argument]
        args += ["--resume", self.recorders[0].id, *repetition_args(self.settings)]
        if self.fail_on is not None:
            args += ["--fail-on", self.fail_on]
        echo(self.context.clean(f"Resume with: {shlex.join(args)}"), err=True)


@dataclass
class _PairDisplay:
    """Prints each pair as soon as both agents have run its case."""

    comparison: "AgentComparison"
    context: CliContext
    progress: "ProgressIndicator"
    live: "LiveLine"
    shown: int = 0
    """How many pairs are complete."""

    def show(self, index: int) -> None:
        """Print the pair of the case at that index, if it is complete."""
        from holodeck.lib.reports.against import pair_lines
        from holodeck.models.comparison import PairVerdict

        pair = self.comparison.pair(index)
        if pair.first is None or pair.second is None:
            return
        self.shown += 1
        if self.progress.quiet or pair.verdict is PairVerdict.NOT_RUN:
            return
        place = f"[Pair {self.shown}/{self.progress.total_tests // 2}]"
        lines = pair_lines(self.context.redactor.redact_report(pair), place)
        self.live.write("\n".join(lines))


def find_compared_runs(name: str, folder: Path) -> "tuple[Run, Run]":
    """Return the recorded runs of the first and the second agent. Raises ConfigError.

    `name` is either of them.
    """
    found = find_run(name, folder)
    compared_with = found.started.compared_with if found.started else None
    if compared_with is None:
        raise ConfigError(
            "--resume", f"run {found.id} compared no agents; remove --against, or name another run"
        )
    other = find_run(compared_with.run, folder)
    return (other, found) if compared_with.is_second else (found, other)


def resume_runs(
    agents: tuple[Agent, Agent],
    runs: "tuple[Run, Run]",
    context: CliContext,
    *,
    retry_errors: bool,
    force: bool,
) -> tuple[ResumedRun, ResumedRun]:
    """Return the results of both runs to keep. Raises ConfigError if an agent changed."""
    first, second = (
        resume_run(agent, run, context, retry_errors=retry_errors, force=force)
        for agent, run in zip(agents, runs, strict=True)
    )
    return first, second
