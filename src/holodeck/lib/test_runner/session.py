"""One run from its agents to its reports: displayed, recorded, interruptible and resumable."""

import asyncio
import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import holodeck
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ExitCode, HoloDeckError, ReportError
from holodeck.lib.backends.base import AgentBackend
from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.observability import initialize_observability, shutdown_observability
from holodeck.lib.processes.process_exit import process_exit_forbidden
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.records.recorder import Recorder, json_line, origin_of
from holodeck.lib.reports.formats import ReportTarget, write_reports
from holodeck.lib.reports.summary import exit_code
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.text import inert, inert_json
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.interruption import Interruption, run_to_report
from holodeck.lib.test_runner.options import OnConversation, RunOptions
from holodeck.lib.test_runner.progress import RunDisplay
from holodeck.lib.ui.live import echo, protected_streams, write_raw, write_text
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.records.record import ComparedWith
from holodeck.models.results.origin import RunOrigin, Selection
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import TestReport, TestResult

if TYPE_CHECKING:
    from holodeck.lib.records.resume import ResumedRun
    from holodeck.lib.reports.markdown import SourceLinks
    from holodeck.models.records.comparison import ComparisonReport

R = TypeVar("R", bound="TestReport | ComparisonReport")

_REPETITIONS = ("repeat", "min_pass", "min_pass_rate")


@dataclass(frozen=True)
class SessionAgent:
    """An agent of a session, with its test cases."""

    source: str
    """Its agent.yaml, or what reports call it instead."""
    agent: Agent
    settings: ExecutionConfig
    """Every value given."""
    resumed: "ResumedRun | None" = None
    """The earlier run that is completed."""
    backend: object | None = None
    """The agent itself as a Python object; None if its configuration says how to reach it."""
    evaluators: dict[str, BaseEvaluator] | None = None
    """Evaluators by metric name, besides those of the configuration."""
    config_loader: ConfigLoader | None = None

    @property
    def kept(self) -> Mapping[int, TestResult]:
        """The results of the earlier run that are still valid, by the index of their case."""
        return {} if self.resumed is None else self.resumed.results


@dataclass
class RunSession(ABC, Generic[R]):
    """Runs the same test cases on an agent or several, which ends in a report `R`.

    `execute` and `arun` only run them; `run` also records, prints and writes reports. The settings
    are those of the first agent.
    """

    agents: Sequence[SessionAgent]
    redactor: Redactor
    display: RunDisplay
    selection: Selection | None = None
    """None if all cases run."""
    is_checked: bool = False
    """Whether the static checks of `holodeck validate` were done before."""
    debug: bool = False
    """Whether a person types the messages of simulated users."""
    on_test_start: Callable[[], None] | None = None
    """Called before each case."""
    on_result: Callable[[TestResult], None] | None = None
    """Called with each result, which holds no secrets."""
    targets: Sequence[ReportTarget] = ()
    """The reports to write."""
    links: "SourceLinks | None" = None
    """Where Markdown reports link lines of YAML to; by default beside the report."""
    command: Sequence[str] = ()
    """The command line that repeats the run."""
    on_report: Callable[[R], None] | None = None
    """Called with the report, without secrets, after all reports are written."""

    recorders: list[Recorder] = field(default_factory=list, init=False)
    """One for each agent; empty without a record."""
    interruption: Interruption = field(default_factory=Interruption, init=False)

    def __post_init__(self) -> None:
        self.executors = self._build_executors()
        for tested in self.agents:
            self.display.add_cases(tested.agent.test_cases or [], tested.kept)

    @property
    def settings(self) -> ExecutionConfig:
        return self.agents[0].settings

    @property
    def run_id(self) -> str | None:
        """The id of the record; None without a record."""
        return self.recorders[0].id if self.recorders else None

    def _build_executors(self) -> list[TestExecutor]:
        """Return what runs each agent."""
        return [self._executor(at, tested) for at, tested in enumerate(self.agents)]

    @abstractmethod
    async def execute_tests(self) -> R:
        """Run all cases and report."""

    @abstractmethod
    def report(self, *, interrupted: bool = False) -> R:
        """Return the report of the results so far."""

    async def shutdown(self) -> None:
        """Close all agents. May be called twice."""
        for executor in self.executors:
            await executor.shutdown()

    @abstractmethod
    def _lines(self, index: int) -> Sequence[str]:
        """Return what is shown when a result of the case at that index is known."""

    @abstractmethod
    def _judge(self, report: R) -> tuple[R, ExitCode]:
        """Return the report in its last form, and the exit code."""

    @abstractmethod
    def _clean_report(self, report: R, code: ExitCode | None) -> R:
        """Return the report without secrets; the exit code is None if there is none."""

    @abstractmethod
    def _reports(self, shown: R) -> Sequence[TestReport]:
        """Return the report of each agent."""

    @abstractmethod
    def _print(self, shown: R) -> None:
        """Print the summary."""

    @abstractmethod
    def _resume_flags(self, report: R) -> Sequence[str]:
        """Return the further flags that complete a run which is not whole."""

    async def execute(self) -> R:
        """Run the cases on the caller's event loop; return the report, without secrets."""
        try:
            report = await self.execute_tests()
        finally:
            for agent, executor in zip(self.agents, self.executors, strict=False):
                if isinstance(agent.backend, AgentBackend):
                    await executor.shutdown()
        return self._clean_report(report, None)

    async def arun(self) -> R:
        """Do what `execute` does, and show it and send telemetry."""
        with self._telemetry(), process_exit_forbidden(), self.display.shown():
            return await self.execute()

    def run_to_report(self) -> R:
        """Run the cases and show it; after Ctrl-C, return the report of those that had finished."""
        with protected_streams() as out, self._telemetry(), self.display.shown(out):
            return run_to_report(self, self.interruption)

    def run(self) -> int:
        """Run the cases, record and print the results and write the reports, even after an error.

        Returns the exit code. Raises what the executor raises, and ReportError.
        """
        self._begin()
        try:
            report, code = self._judge(self.run_to_report())
        except Exception as error:
            code = error.exit_code if isinstance(error, HoloDeckError) else ExitCode.EXECUTION
            self._finish(self.report(interrupted=True), code)
            raise
        return self._finish(report, code)

    def _executor(self, at: int, tested: SessionAgent) -> TestExecutor:
        """Return what runs an agent; its results are recorded, then displayed."""
        return TestExecutor(
            tested.source,
            agent_config=tested.agent,
            resolved_execution_config=tested.settings,
            config_loader=tested.config_loader,
            backend=tested.backend,
            evaluators=tested.evaluators,
            progress_callback=self.on_result,
            on_test_start=self._start_test,
            options=RunOptions(
                carried_over=tested.kept,
                selection=self.selection,
                run_id=lambda: self.recorders[at].id if self.recorders else None,
                is_checked=self.is_checked,
                is_debugged=self.debug,
                clean=self.redactor.redact_report,
                on_result=partial(self._take_result, at),
                on_conversation=self._on_conversation(),
            ),
        )

    def _start_test(self, case: TestCaseModel) -> None:
        if self.on_test_start is not None:
            self.on_test_start()
        self.display.start_test(case)

    def _take_result(self, at: int, index: int, result: TestResult) -> None:
        """Record and display a result of the agent at that index."""
        if self.recorders:  # before it is displayed, in case the process is killed
            self.recorders[at].add(index, result)
        self.display.update(index, result)
        self.display.write(self._lines(index))

    def _on_conversation(self) -> OnConversation | None:
        """Return what displays conversations; None if nobody asked for it."""
        progress = self.display.progress
        if self.debug or (progress.verbose and not progress.quiet):
            # The engine of conversations, which most runs do without.
            from holodeck.lib.test_runner.events import show_conversations  # noqa: PLC0415

            return show_conversations(self.redactor.redact, debug=self.debug)
        return None

    @contextmanager
    def _telemetry(self) -> Iterator[None]:
        """Send telemetry as the `observability` of the first agent says."""
        agent = self.agents[0].agent
        telemetry = initialize_observability(
            agent.observability, agent.name, self.redactor.redact, agent.base_dir
        )
        is_cancelled = False
        try:
            yield
        except (KeyboardInterrupt, asyncio.CancelledError):
            is_cancelled = True
            raise
        finally:
            shutdown_observability(
                telemetry, interrupted=is_cancelled or self.interruption.is_announced
            )

    def _begin(self) -> None:
        """Start a record for each agent; two agents' records name each other."""
        if not (self.settings.record and any(executor.cases for executor in self.executors)):
            return
        # That of the first agent is the latest, so that `last` means it.
        recorders = [
            Recorder(tested.agent, fingerprint_of(tested.agent)) for tested in self.agents[::-1]
        ][::-1]
        if len(recorders) > 1:
            first, second = recorders
            first.compared_with = ComparedWith(run=second.id, is_second=False)
            second.compared_with = ComparedWith(run=first.id, is_second=True)
        self.recorders = recorders
        for recorder, tested in zip(recorders, self.agents, strict=True):
            recorder.begin(
                tested.source,
                self.settings,
                self.redactor,
                version=holodeck.__version__,
                selection=self.selection,
                resumes=tested.resumed.id if tested.resumed else None,
                carried_over=tested.kept,
            )

    def _finish(self, report: R, code: ExitCode) -> int:
        """Print the summary, close the records and write every report that can be written."""
        shown = self._clean_report(report, code)
        self._print(shown)
        lost = []
        for recorder, part in zip(self.recorders, self._reports(shown), strict=False):
            recorder.end(part, code)
            if recorder.failure is not None:
                lost.append(f"the run record is incomplete: {recorder.path}: {recorder.failure}")
        detail = self.settings.report_detail
        failures = write_reports(shown, self.targets, self._clean, detail, self.links)
        if lost and len(failures) == len(self.targets):
            echo("no file could be written; the report as JSON:", err=True)
            write_raw(sys.stderr, inert_json(json_line(shown).decode()))
        self._print_resume_command(report)
        if self.on_report is not None:
            self.on_report(shown)
        failures += lost
        if failures:
            raise ReportError("\n".join(failures))
        return code

    def _exit_code(self, code: ExitCode) -> ExitCode:
        """Return the exit code of a report; a signal decides which of an interruption."""
        return self.interruption.exit_code if code is ExitCode.INTERRUPTED else code

    def _print_resume_command(self, report: R) -> None:
        reports = self._reports(report)
        is_broken = any(recorder.failure is not None for recorder in self.recorders)
        if not self.recorders or is_broken or all(part.is_whole for part in reports):
            return
        if not any(part.ran for part in reports):
            return
        sources = {name: self.settings.source_of(name) for name in _REPETITIONS}
        # Without these, the cases would count as changed.
        repetitions = [
            argument
            for name, source in sources.items()
            if source.startswith("--")
            for argument in (source, f"{getattr(self.settings, name)}")
        ]
        flags = [*self._resume_flags(report), *repetitions]
        args = [*self.command, "--resume", self.recorders[0].id, *flags]
        echo(self._clean(f"Resume with: {shlex.join(args)}"), err=True)

    def _clean(self, text: str) -> str:
        return inert(self.redactor.redact(text))


Gate = Callable[[TestReport, ExitCode], tuple[TestReport, ExitCode, Sequence[str]]]
"""Compares a run with an earlier run.

Returns the report with notes, the exit code that counts, and lines for the terminal.
"""


@dataclass
class TestSession(RunSession[TestReport]):
    """A run of a single agent."""

    __test__ = False

    gate: Gate | None = None
    """None for no comparison."""

    _origin: RunOrigin | None = field(default=None, init=False)
    _comparison: Sequence[str] = field(default=(), init=False)

    async def execute_tests(self) -> TestReport:
        return await self.executors[0].execute_tests()

    def report(self, *, interrupted: bool = False) -> TestReport:
        return self.executors[0].report(interrupted=interrupted)

    def _lines(self, index: int) -> Sequence[str]:  # noqa: ARG002 - it is the last
        progress = self.display.progress
        line = "" if progress.quiet else progress.get_progress_line()
        return [line, *progress.get_reason_lines()] if line else ()

    def _begin(self) -> None:
        super()._begin()
        if self.recorders:
            self._origin = self.recorders[0].origin
        elif self.executors:
            self._origin = origin_of(self.agents[0].agent)

    def _judge(self, report: TestReport) -> tuple[TestReport, ExitCode]:
        code = self._exit_code(exit_code(report))
        if self.gate is not None:
            report, code, self._comparison = self.gate(report, code)
        return report, code

    def _clean_report(self, report: TestReport, code: ExitCode | None) -> TestReport:
        if self._origin is not None:
            origin = self._origin.model_copy(update={"exit_code": code})
            report = report.model_copy(update={"origin": origin})
        return self.redactor.redact_frame(report)

    def _reports(self, shown: TestReport) -> Sequence[TestReport]:
        return (shown,)

    def _print(self, shown: TestReport) -> None:
        progress = self.display.progress
        progress.end(shown)
        progress.is_one_at_a_time = any(executor.is_one_at_a_time for executor in self.executors)
        comparison = self._clean("\n".join(self._comparison))
        parts = (progress.get_failures(), progress.get_summary(), comparison)
        write_text(sys.stdout, "".join(f"{part}\n" for part in parts if part))

    def _resume_flags(self, report: TestReport) -> Sequence[str]:
        retries = report.stopped is not None and report.stopped_by not in {"fail_fast", "budget"}
        return ["--retry-errors"] if retries else []
