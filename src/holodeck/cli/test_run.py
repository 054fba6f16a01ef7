"""One run of `holodeck test`: executed, displayed, recorded and reported; perhaps resumed."""

import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from holodeck import __version__
from holodeck.cli.agent_paths import AgentTarget
from holodeck.cli.context import CliContext
from holodeck.cli.options import ReportTarget, write_reports
from holodeck.errors import ConfigError, ExitCode, HoloDeckError, ReportError
from holodeck.lib.support.text import inert_json
from holodeck.lib.ui.live import echo, write_raw

if TYPE_CHECKING:
    from holodeck.cli.interruptible_run import Runner
    from holodeck.cli.regression_gate import RegressionGate
    from holodeck.lib.records.recorder import Recorder
    from holodeck.lib.records.run_store import Run
    from holodeck.lib.test_runner.events import OnConversation
    from holodeck.lib.test_runner.executor import TestExecutor
    from holodeck.lib.test_runner.progress import ProgressIndicator
    from holodeck.lib.ui.live import LiveLine
    from holodeck.models.agent import Agent
    from holodeck.models.config import ExecutionConfig
    from holodeck.models.results.origin import RunOrigin, Selection
    from holodeck.models.test_case import TestCaseModel
    from holodeck.models.test_result import TestReport, TestResult

R = TypeVar("R")

_REPETITIONS = ("repeat", "min_pass", "min_pass_rate")


@dataclass(frozen=True)
class ResumedRun:
    """An earlier run and those of its results that are still valid."""

    id: str
    results: "Mapping[int, TestResult]"
    """By the case's index in the present file."""


def find_run(name: str, folder: Path) -> "Run":
    """Return the recorded run of an agent in `folder`. Raises ConfigError."""
    from holodeck.lib.records.run_store import RunStore

    return RunStore(folder).read(name)


def repeat_selection(agent: "Agent", run: "Run") -> "tuple[Agent, Selection | None]":
    """Return the agent with the cases that `run` selected; no Selection if it selected all."""
    from holodeck.lib.records.fingerprint import fingerprint_of
    from holodeck.lib.records.run_store import find_cases

    selection = run.started.selection if run.started else None
    if run.started is None or selection is None:
        return agent, None
    present = fingerprint_of(agent).cases
    indexes = find_cases(run.started.cases, present)
    return agent.with_cases(indexes), selection.now(len(present), len(indexes))


def resume_run(
    agent: "Agent", run: "Run", context: CliContext, *, retry_errors: bool, force: bool
) -> ResumedRun:
    """Return the results to keep. Raises ConfigError if the run goes on or the agent changed."""
    from holodeck.lib.records.fingerprint import fingerprint_of
    from holodeck.lib.records.run_store import describe_changes, reusable_results
    from holodeck.lib.support.text import plural

    if run.is_running:
        raise ConfigError("--resume", f"run {run.id} is still running; wait for it, or stop it")
    for warning in run.warnings:
        context.warn(warning)
    present = fingerprint_of(agent)
    changed = "".join(f"\n  {line}" for line in describe_changes(run, present, __version__))
    if changed and not force:
        raise ConfigError(
            "--resume",
            f"the configuration has changed since run {run.id}:{changed}\n"
            "add --force to rerun the affected cases and keep the other results",
        )
    if changed:
        echo(f"Changed since run {run.id}:{changed}", err=True)
    results = reusable_results(run, present, retry_errors=retry_errors)
    count = len(agent.test_cases or [])
    left = plural(count - len(results), "case runs", "cases run")
    echo(f"Resuming {run.id}: {len(results)} of {count} results are kept, {left}", err=True)
    return ResumedRun(run.id, results)


@contextmanager
def open_display(
    agent: "Agent", context: CliContext, progress: "ProgressIndicator", *, enabled: bool = True
) -> "Iterator[LiveLine]":
    """Yield a live line; the agent's `observability` says where telemetry goes."""
    from holodeck.cli.interruptible_run import protected_streams
    from holodeck.lib.observability import initialize_observability, shutdown_observability
    from holodeck.lib.ui.live import LiveLine

    redact = context.redactor.redact
    telemetry = initialize_observability(agent.observability, agent.name, redact, agent.base_dir)
    is_live = enabled and not progress.quiet
    with protected_streams() as out:
        try:
            yield LiveLine(
                progress.get_live_line, progress.get_heartbeat_line, out=out, enabled=is_live
            )
        finally:
            shutdown_observability(telemetry, interrupted=context.is_interrupted)


def run_displayed(
    runner: "Runner[R]", live: "LiveLine", progress: "ProgressIndicator", context: CliContext
) -> "tuple[R, bool]":
    """Return the report, after a signal that of the finished cases; and whether it was SIGTERM."""
    from holodeck.cli.interruptible_run import run_to_report
    from holodeck.lib.ui.activity import displayed

    received = list[signal.Signals]()

    def on_interrupt(one: signal.Signals) -> None:
        received.append(one)
        context.is_interrupted = True
        with live.pause():
            echo("Interrupted: stopping; press Ctrl-C again to abort", err=True)

    progress.live.redact = context.redactor.redact
    token = displayed.set(progress.live.activities)
    try:
        with live:
            return run_to_report(runner, on_interrupt), signal.SIGTERM in received
    finally:
        displayed.reset(token)


def close_record(recorder: "Recorder", shown: "TestReport", code: int) -> list[str]:
    """Close the record; return an error message if it is incomplete."""
    recorder.end(shown, code)
    if recorder.failure is None:
        return []
    return [f"the run record is incomplete: {recorder.path}: {recorder.failure}"]


def repetition_args(settings: "ExecutionConfig") -> list[str]:
    """Return the flags without which the cases of a resumed run would count as changed."""
    flags = {name: settings.source_of(name) for name in _REPETITIONS}
    given = [(flag, name) for name, flag in flags.items() if flag.startswith("--")]
    return [arg for flag, name in given for arg in (flag, f"{getattr(settings, name)}")]


@dataclass
class TestRun:
    """What to run and how, and the state of the run."""

    __test__ = False

    target: AgentTarget
    agent: "Agent"
    settings: "ExecutionConfig"
    report_targets: Sequence[ReportTarget]
    context: CliContext
    selection: "Selection | None" = None
    """None if all cases run."""
    resumed: ResumedRun | None = None
    debug: bool = False
    """Whether a person types the messages of simulated users."""

    gate: "RegressionGate | None" = None
    """Compares the run with an earlier one; None for no comparison."""

    recorder: "Recorder | None" = field(default=None, init=False)
    origin: "RunOrigin" = field(init=False)
    report: "TestReport | None" = field(default=None, init=False)
    """The results, once there are any; without secrets."""
    comparison: str = field(default="", init=False)
    """What the comparison with an earlier run says."""
    is_terminated: bool = field(default=False, init=False)
    """Whether SIGTERM, not Ctrl-C, interrupted the run."""
    _live: "LiveLine | None" = field(default=None, init=False)
    """Where results are displayed, once they are."""

    def run(self) -> int:
        """Run the cases, print the summary and write the reports, even after an error."""
        from holodeck.lib.test_runner.progress import ProgressIndicator

        progress = ProgressIndicator(
            len(self.agent.test_cases or []),
            quiet=bool(self.settings.quiet),
            verbose=bool(self.settings.verbose),
        )
        progress.selection = self.selection
        if self.resumed is not None:
            for result in self.resumed.results.values():
                progress.update(result)
        executor = self._executor(progress)
        if self.settings.record and self.agent.test_cases:
            self.recorder = self._start_record()
        self.origin = self._origin()
        try:
            report, code = self._apply_gate(self._execute(executor, progress))
        except Exception as error:
            code = error.exit_code if isinstance(error, HoloDeckError) else ExitCode.EXECUTION
            self._finish(executor.report(interrupted=True), code, progress)
            raise
        return self._finish(report, code, progress)

    def _start_record(self) -> "Recorder":
        from holodeck.lib.records.fingerprint import fingerprint_of
        from holodeck.lib.records.recorder import Recorder

        recorder = Recorder(self.agent, fingerprint_of(self.agent))
        if self.context.read_tracker is not None:
            self.context.read_tracker.run = recorder.id
        recorder.begin(
            self.target.path,
            self.settings,
            self.context.redactor,
            version=__version__,
            selection=self.selection,
            resumes=self.resumed.id if self.resumed else None,
            carried_over=self.resumed.results if self.resumed else None,
        )
        return recorder

    def _origin(self) -> "RunOrigin":
        """Return what identifies the run and its configuration, without its end."""
        from holodeck.lib.records.recorder import origin_of

        return origin_of(self.agent) if self.recorder is None else self.recorder.origin

    def _execute(self, executor: "TestExecutor", progress: "ProgressIndicator") -> "TestReport":
        """Run the cases; record each result, then display it."""
        # A line that is redrawn would disturb a person who types.
        is_live = not self.debug
        with open_display(self.agent, self.context, progress, enabled=is_live) as live:
            self._live = live
            try:
                report, self.is_terminated = run_displayed(executor, live, progress, self.context)
            finally:
                progress.is_one_at_a_time = executor.is_one_at_a_time
        return report

    def _executor(self, progress: "ProgressIndicator") -> "TestExecutor":
        """Return what runs the cases; its results, without secrets, are recorded and displayed."""
        from holodeck.lib.reports.recap import case_label
        from holodeck.lib.test_runner.executor import TestExecutor
        from holodeck.lib.test_runner.options import RunOptions

        redactor, read_tracker = self.context.redactor, self.context.read_tracker
        cases, kept = self.agent.test_cases or [], self.resumed.results if self.resumed else {}
        progress.live.waiting_runs = sum(
            case.repeat or 1
            for index, case in enumerate(cases)
            if index not in kept and case.skip is None
        )

        def on_test_start(case: "TestCaseModel") -> None:
            if read_tracker is not None:
                read_tracker.stop_tracking()
            name = case.name and redactor.redact(case.name)
            runs = case.repeat or 1
            progress.start_test(case_label(name, redactor.redact(case.user_input)), runs)

        def on_result(index: int, result: "TestResult") -> None:
            if self.recorder is not None:  # before it is displayed, in case the process is killed
                self.recorder.add(index, result)
            progress.update(result)
            if result.skipped_by not in {None, "skip"} and progress.live.waiting_runs:
                progress.live.waiting_runs -= cases[index].repeat or 1
            line = progress.get_progress_line()
            if line and self._live is not None:
                self._live.write("\n".join([line, *progress.get_reason_lines()]))

        return TestExecutor(
            self.target.path,
            agent_config=self.agent,
            resolved_execution_config=self.settings,
            on_test_start=on_test_start,
            options=RunOptions(
                carried_over=kept,
                selection=self.selection,
                run_id=lambda: None if self.recorder is None else self.recorder.id,
                is_checked=True,  # all agents were, before the first of them runs
                is_debugged=self.debug,
                clean=redactor.redact_report,
                on_result=on_result,
                on_conversation=self._show_conversations(progress),
            ),
        )

    def _show_conversations(self, progress: "ProgressIndicator") -> "OnConversation | None":
        """Return what displays conversations; None if nobody asked for it."""
        if not (self.debug or (progress.verbose and not progress.quiet)):
            return None
        from holodeck.lib.test_runner.events import show_conversations

        return show_conversations(self.context.redactor.redact, debug=self.debug)

    def _exit_code(self, report: "TestReport") -> ExitCode:
        from holodeck.lib.reports.summary import exit_code

        code = exit_code(report)
        is_terminated = code is ExitCode.INTERRUPTED and self.is_terminated
        return ExitCode.TERMINATED if is_terminated else code

    def _apply_gate(self, report: "TestReport") -> "tuple[TestReport, ExitCode]":
        """Return the report with what the comparison says, and the exit code."""
        code = self._exit_code(report)
        if self.gate is None:
            return report, code
        judgment = self.gate.judge(report)
        self.comparison = "\n".join(judgment.lines)
        notes = [*report.notes, "\n".join(line.strip() for line in judgment.lines)]
        report = report.model_copy(update={"notes": notes})
        return report, self.gate.exit_code(code, report, judgment)

    def _finish(self, report: "TestReport", code: ExitCode, progress: "ProgressIndicator") -> int:
        """Print the summary, close the record and write every report that can be written."""
        from holodeck.lib.ui.live import write_text

        origin = self.origin.model_copy(update={"exit_code": code})
        report = report.model_copy(update={"origin": origin})
        shown = self.context.redactor.redact_frame(report)
        self.report = shown
        comparison = self.context.clean(self.comparison)
        parts = (progress.get_failures(), progress.get_summary(), comparison)
        write_text(sys.stdout, "".join(f"{part}\n" for part in parts if part))
        record_errors = [] if self.recorder is None else close_record(self.recorder, shown, code)
        detail = self.settings.report_detail
        failures = write_reports(shown, self.report_targets, self.context, detail)
        if record_errors and len(failures) == len(self.report_targets):
            from holodeck.lib.records.recorder import json_line

            echo("no file could be written; the report as JSON:", err=True)
            write_raw(sys.stderr, inert_json(json_line(shown).decode()))
        self._print_resume_command(report, progress)
        if self.context.github is not None:
            self.context.github.show(shown)
        failures += record_errors
        if failures:
            raise ReportError("\n".join(failures))
        return code

    def _print_resume_command(self, report: "TestReport", progress: "ProgressIndicator") -> None:
        recorder = self.recorder
        is_complete = not report.interrupted and report.stopped is None and not progress.unreached
        if recorder is None or recorder.failure is not None or is_complete or not report.ran:
            return
        args = ["holodeck", "test", *self.target.args, "--resume", recorder.id]
        if report.stopped is not None and report.stopped_by not in {"fail_fast", "budget"}:
            args.append("--retry-errors")
        args += repetition_args(self.settings)
        echo(self.context.clean(f"Resume with: {shlex.join(args)}"), err=True)
