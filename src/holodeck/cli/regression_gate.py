"""`holodeck test --baseline`: which failures are regressions, and do they fail again?"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holodeck.cli.context import CliContext
from holodeck.cli.test_run import open_display, run_displayed
from holodeck.errors import ExitCode, HoloDeckError
from holodeck.lib.ui.live import echo

if TYPE_CHECKING:
    from holodeck.lib.compare.gate import Suspect
    from holodeck.lib.compare.run_comparison import ComparedRun
    from holodeck.models.agent import Agent
    from holodeck.models.config import ExecutionConfig
    from holodeck.models.test_result import TestReport


@dataclass(frozen=True)
class GateOptions:
    """What the command line says about a baseline."""

    baseline: str
    """As `holodeck compare` names a run."""
    confirm: int
    """How often a suspect runs again."""
    decides: bool
    """Whether regressions, and not failures, decide the exit code."""


@dataclass(frozen=True)
class Judgment:
    """What the comparison with the baseline says of a run."""

    lines: Sequence[str]
    """For the end of the run, and for its reports."""
    is_clear: bool
    """Whether only cases fail that failed before, or that are flaky."""
    interrupted: ExitCode | None = None
    """The exit code of a signal that came while cases ran again."""


@dataclass(frozen=True)
class RegressionGate:
    """The gate of one run."""

    base: "ComparedRun"
    options: GateOptions
    path: str
    """Of the agent.yaml."""
    agent: "Agent"
    """With the cases that were run."""
    settings: "ExecutionConfig"
    context: CliContext

    def judge(self, report: "TestReport") -> Judgment:
        """Return what the baseline says of a run; cases that passed there and fail run again.

        A run that is not whole has no regressions to speak of: its exit code says why.
        """
        from holodeck.lib.compare.gate import decide, describe_gate, failures_of

        is_whole = len(report.results) == len(self.agent.test_cases or [])
        if report.interrupted or report.stopped is not None or not is_whole:
            line = f"Not compared with {self.base.source}, because not all cases ran"
            return Judgment([line], is_clear=False)
        failures = failures_of(self.base, report)
        further = self._run_again(failures.suspects)
        decisions = [
            decide(one, [report.results[at] for report in further.reports], self.options.confirm)
            for at, one in enumerate(failures.suspects)
        ]
        now = self._present(report)
        lines = [*describe_gate(self.base, now, failures, decisions), *further.notes()]
        is_clear = not failures.new and all(one.state == "flaky" for one in decisions)
        return Judgment(lines, is_clear, further.interrupted)

    def _present(self, report: "TestReport") -> "ComparedRun":
        """Return the run with hashes of what is written about its cases and metrics."""
        from holodeck.lib.compare.run_comparison import ComparedRun
        from holodeck.lib.records.fingerprint import fingerprint_of
        from holodeck.models.records.baseline import case_keys

        found = fingerprint_of(self.agent)
        hashes = [one.hash for one in found.cases]
        case_hashes = dict(zip(case_keys(report.results), hashes, strict=True))
        return ComparedRun(report, "this run", hashes=found.parts, case_hashes=case_hashes)

    def exit_code(self, code: ExitCode, report: "TestReport", judgment: Judgment) -> ExitCode:
        """Return the exit code of the run: cases that failed before, or are flaky, do not count."""
        from holodeck.models.results.outcome import Outcome

        if judgment.interrupted is not None:
            return judgment.interrupted
        is_unchecked = any(one.outcome is Outcome.UNCHECKED for one in report.results)
        if code is not ExitCode.TEST_FAILED or not self.options.decides or is_unchecked:
            return code
        return ExitCode.PASSED if judgment.is_clear else code

    def _run_again(self, suspects: "Sequence[Suspect]") -> "_FurtherRuns":
        """Run the suspects again, all of them together, until a run is not whole."""
        from holodeck.lib.support.text import plural

        further = _FurtherRuns()
        times = self.options.confirm if suspects else 0
        for number in range(1, times + 1):
            cases = plural(len(suspects), "case")
            echo(f"Confirming {cases}: run {number} of {times}", err=True)
            try:
                report, is_terminated = self._run_once([one.index for one in suspects])
            except HoloDeckError as error:
                further.problem = str(error)
                break
            if report.interrupted:
                code = ExitCode.TERMINATED if is_terminated else ExitCode.INTERRUPTED
                further.interrupted = code
                break
            if report.stopped is not None:
                further.problem = report.stopped
                break
            further.reports.append(report)
        return further

    def _run_once(self, indexes: "Sequence[int]") -> "tuple[TestReport, bool]":
        """Return the report of these cases, and whether SIGTERM ended the run."""
        from holodeck.lib.test_runner.executor import TestExecutor
        from holodeck.lib.test_runner.options import RunOptions
        from holodeck.lib.test_runner.progress import ProgressIndicator

        agent = self.agent.with_cases(indexes)
        # each of them must run, whatever the others do
        cases = [one.model_copy(update={"fail_fast": None}) for one in agent.test_cases or []]
        agent = agent.model_copy(update={"test_cases": cases})
        settings = self.settings.model_copy(update={"fail_fast": False, "maxfail": None})
        executor = TestExecutor(
            self.path,
            agent_config=agent,
            resolved_execution_config=settings,
            options=RunOptions(is_checked=True),
        )
        progress = ProgressIndicator(len(indexes), quiet=True)
        with open_display(agent, self.context, progress, enabled=False) as live:
            return run_displayed(executor, live, progress, self.context)


@dataclass
class _FurtherRuns:
    """The runs that confirm regressions."""

    reports: "list[TestReport]" = field(default_factory=list)
    """Of whole runs."""
    problem: str = ""
    """Why the others did not take place."""
    interrupted: ExitCode | None = None

    def notes(self) -> list[str]:
        """Return why runs are missing, and the tokens that no total of the run contains."""
        notes = [f"  not all further runs took place: {self.problem}"] if self.problem else []
        summaries = [one.summary for one in self.reports]
        usages = [
            usage
            for one in summaries
            for usage in (one.token_usage, one.judge_usage, one.simulator_usage)
        ]
        tokens = sum(one.total_tokens for one in usages)
        if tokens:
            notes.append(f"  the further runs used {tokens:,} tokens, which no total contains")
        return notes
