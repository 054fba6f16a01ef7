"""One run of `holodeck test`: executed, watched, recorded and reported."""

import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holodeck import __version__
from holodeck.cli.cli_context import CliContext
from holodeck.cli.report_output import ReportTarget, write_reports
from holodeck.errors import ExitCode, HoloDeckError, ReportError

if TYPE_CHECKING:
    from holodeck.cli.resume import ResumedRun
    from holodeck.lib.llm.retry import Wait
    from holodeck.lib.records.recorder import Recorder
    from holodeck.lib.test_runner.executor import TestExecutor
    from holodeck.lib.test_runner.progress import ProgressIndicator
    from holodeck.lib.ui.live import LiveLine
    from holodeck.models.agent import Agent
    from holodeck.models.config import ExecutionConfig
    from holodeck.models.selection import Selection
    from holodeck.models.test_result import TestReport

_BAR = ("repeat", "min_pass", "min_pass_rate")


@dataclass
class TestRun:
    """What is run and how, and what has come of it so far."""

    __test__ = False

    agent_config: str
    agent: "Agent"
    settings: "ExecutionConfig"
    targets: Sequence[ReportTarget]
    invocation: CliContext
    selection: "Selection | None" = None
    """None if every case is to run."""
    earlier: "ResumedRun | None" = None
    debug: bool = False
    """Whether a person speaks for simulated users."""

    again: tuple[str, ...] = field(default=(), init=False)
    """The paths that mean the same run; none means the agent's."""
    recorder: "Recorder | None" = field(default=None, init=False)
    terminated: bool = field(default=False, init=False)
    """Whether SIGTERM, not Ctrl-C, interrupted the run."""

    def to_exit_code(self) -> int:
        """Run, show the summary and write the reports; also of a run that broke half-way."""
        from holodeck.lib.test_runner.executor import TestExecutor

        progress = self._progress()
        executor = TestExecutor(
            self.agent_config, agent_config=self.agent, resolved_execution_config=self.settings
        )
        if self.earlier is not None:
            executor.carried_over = self.earlier.results
        executor.is_checked = True  # all agents were, before the first of them runs
        executor.selection = self.selection
        self.recorder = self._recorder()
        executor.run_id = self.recorder.id if self.recorder else None
        try:
            report = self._watched(executor, progress)
        except Exception as error:
            code = error.exit_code if isinstance(error, HoloDeckError) else ExitCode.EXECUTION
            self._finish(executor.report(interrupted=True), progress, code)
            raise
        return self._finish(report, progress, self._code_of(report))

    def _progress(self) -> "ProgressIndicator":
        from holodeck.lib.test_runner.progress import ProgressIndicator

        settings, cases = self.settings, self.agent.test_cases or []
        progress = ProgressIndicator(
            len(cases), quiet=bool(settings.quiet), verbose=bool(settings.verbose)
        )
        progress.selection = self.selection
        for result in self.earlier.results.values() if self.earlier else ():
            progress.update(result)
        return progress

    def _recorder(self) -> "Recorder | None":
        """A record with its first line written; None where none is wanted."""
        if not self.settings.record or not self.agent.test_cases:
            return None
        from holodeck.lib.records.fingerprint import fingerprint_of
        from holodeck.lib.records.recorder import Recorder

        recorder = Recorder(self.agent, fingerprint_of(self.agent))
        if self.invocation.read_tracker is not None:
            self.invocation.read_tracker.run = recorder.id
        redactor, earlier = self.invocation.redactor, self.earlier
        recorder.begin(
            self.agent_config,
            self.settings,
            redactor,
            version=__version__,
            selection=self.selection,
            resumes=earlier.id if earlier else None,
            carried_over=earlier.results if earlier else None,
        )
        return recorder

    def _watched(self, executor: "TestExecutor", progress: "ProgressIndicator") -> "TestReport":
        """Run the tests, each result recorded and then shown as it comes."""
        from holodeck.cli.interruptible_run import run_to_report
        from holodeck.cli.streams import streams_kept
        from holodeck.lib.llm.retry import on_wait
        from holodeck.lib.observability import initialize_observability, shutdown_observability
        from holodeck.lib.ui.live import LiveLine
        from holodeck.models.observability import ObservabilityConfig

        observed = self.agent.observability or ObservabilityConfig()
        traces = initialize_observability(
            observed, self.agent.name, self.invocation.redactor.redact
        )
        # A line that keeps changing, or a word on how long it takes, would only disturb a person.
        is_live = not progress.quiet and not self.debug
        with streams_kept() as out:
            live = LiveLine(
                progress.get_live_line, progress.get_heartbeat_line, out=out, enabled=is_live
            )
            self._connect(executor, progress, live)

            def stopping(received: signal.Signals) -> None:
                self.terminated = received == signal.SIGTERM
                with live.paused():
                    click.echo("Interrupted: stopping; Ctrl-C again stops at once", err=True)

            token = on_wait.set(partial(_note_wait, progress, self.invocation.redactor.redact))
            try:
                with live:
                    return run_to_report(executor, stopping)
            finally:
                on_wait.reset(token)
                progress.is_one_at_a_time = executor.is_one_at_a_time
                shutdown_observability(traces)

    def _connect(
        self, executor: "TestExecutor", progress: "ProgressIndicator", live: "LiveLine"
    ) -> None:
        """Let record and progress follow the executor; what they are told holds no secrets."""
        from holodeck.lib.test_runner.progress import label_of

        redactor, recorder = self.invocation.redactor, self.recorder
        read_tracker = self.invocation.read_tracker

        def started(case: Any) -> None:
            if read_tracker is not None:
                read_tracker.stop_tracking()
            name, said = case.name and redactor.redact(case.name), redactor.redact(case.said)
            progress.start_test(label_of(name, said))

        def finished(index: int, result: Any) -> None:
            shown = redactor.redact_report(result)
            if recorder is not None:  # before anybody is told, or a kill could make it untrue
                recorder.add(index, shown)
            progress.update(shown)
            line = progress.get_progress_line()
            if line:
                live.write("\n".join([line, *progress.get_reason_lines()]))

        if self.debug or (progress.verbose and not progress.quiet):
            from holodeck.lib.test_runner.conversation_display import show_conversations

            executor.on_conversation = show_conversations(redactor.redact, debug=self.debug)
        executor.on_test_start = started
        executor.on_result = finished

    def _code_of(self, report: "TestReport") -> ExitCode:
        from holodeck.lib.test_runner.summary import exit_code

        code = exit_code(report)
        if code is ExitCode.INTERRUPTED and self.terminated:
            return ExitCode.TERMINATED
        return code

    def _finish(self, report: "TestReport", progress: "ProgressIndicator", code: ExitCode) -> int:
        """Show the summary, close the record, write every report that can be written."""
        from holodeck.lib.ui.live import put

        shown = self.invocation.redactor.redact_report(report)
        parts = (progress.get_failures(), progress.get_summary())
        put(sys.stdout, "".join(f"{part}\n" for part in parts if part))
        record_lost = self._closed(shown, code)
        failures = write_reports(shown, self.targets, self.invocation)
        if record_lost and len(failures) == len(self.targets):
            self._rescue(shown)
        self._say_how_to_resume(report)
        failures += record_lost
        if failures:
            raise ReportError("\n".join(failures))
        return code

    def _closed(self, shown: "TestReport", code: ExitCode) -> list[str]:
        """Close the record; what is wrong with it, if anything is."""
        recorder = self.recorder
        if recorder is None:
            return []
        recorder.end(shown, code)
        if recorder.trouble is None:
            return []
        return [f"the record is not whole: {recorder.path}: {recorder.trouble}"]

    def _rescue(self, shown: "TestReport") -> None:
        """The results on stderr: there is nowhere else to keep them."""
        from holodeck.lib.records.recorder import line_of

        click.echo("no file could be written; the report as JSON:", err=True)
        click.echo(line_of(shown), err=True, nl=False)

    def _repeats(self) -> list[str]:
        """What the command line says of repetitions; without it other cases would be meant."""
        given = {name: getattr(self.settings, name) for name in _BAR}
        said = [name for name in given if self.settings.source_of(name).startswith("--")]
        return [word for name in said for word in (self.settings.source_of(name), f"{given[name]}")]

    def _say_how_to_resume(self, report: "TestReport") -> None:
        recorder = self.recorder
        left_out = any(one.skipped_by not in {None, "skip"} for one in report.results)
        complete = not report.interrupted and report.stopped is None and not left_out
        if recorder is None or recorder.trouble is not None or complete or not report.ran:
            return
        args = ["holodeck", "test", *(self.again or (self.agent_config,)), "--resume", recorder.id]
        is_asked_for = report.stopped_by in {"fail_fast", "budget"}
        if report.stopped is not None and not is_asked_for:
            args.append("--retry-errors")
        args += self._repeats()
        line = f"Resume with: {shlex.join(args)}"
        click.echo(self.invocation.clean(line), err=True)


def _note_wait(progress: "ProgressIndicator", redact: Callable[[str], str], wait: "Wait") -> None:
    """Show the wait before a request is sent again."""
    progress.note_wait(replace(wait, reason=redact(wait.reason)))
