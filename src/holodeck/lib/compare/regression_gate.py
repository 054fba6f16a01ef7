"""`holodeck test --baseline`: which failures are regressions, and do they fail again?"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from holodeck.errors import ExitCode, HoloDeckError
from holodeck.lib.compare.gate import Suspect, decide, describe_gate, failures_of
from holodeck.lib.compare.run_comparison import ComparedRun, of_one_agent, read_side
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.records.run_store import RunStore
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.text import plural
from holodeck.lib.test_runner.progress import RunDisplay
from holodeck.lib.test_runner.session import SessionAgent, TestSession
from holodeck.lib.ui.live import echo
from holodeck.models.records.record import case_keys
from holodeck.models.results.origin import RunOrigin
from holodeck.models.results.outcome import Outcome
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


@dataclass
class _FurtherRuns:
    """The runs that confirm regressions."""

    reports: list[TestReport] = field(default_factory=list)
    """Of whole runs."""
    problem: str = ""
    """Why the others did not take place."""
    interrupted: ExitCode | None = None
    """The exit code of a signal that came while cases ran again."""

    def notes(self) -> list[str]:
        """Return why runs are missing, and the tokens that no total of the run contains."""
        notes = [f"  not all further runs took place: {self.problem}"] if self.problem else []
        tokens = sum(
            usage.total_tokens
            for report in self.reports
            for usage in (
                report.summary.token_usage,
                report.summary.judge_usage,
                report.summary.simulator_usage,
            )
        )
        if tokens:
            notes.append(f"  the further runs used {tokens:,} tokens, which no total contains")
        return notes


class RegressionGate:
    """The gate of a run; the baseline is read at once. Raises ConfigError.

    Args:
        tested: The agent, with the cases that are run.
    """

    def __init__(self, options: GateOptions, tested: SessionAgent, redactor: Redactor) -> None:
        folder = tested.agent.base_dir
        side = read_side(options.baseline, RunStore(folder), folder)
        self._base = of_one_agent(side, tested.agent.name)
        self._options = options
        self._tested = tested
        self._redactor = redactor

    def judge(
        self, report: TestReport, code: ExitCode
    ) -> tuple[TestReport, ExitCode, Sequence[str]]:
        """Return the report with what the baseline says of it, the exit code, and the lines.

        Cases that passed there and fail run again. A run that is not whole has no regressions to
        speak of: its exit code says why.
        """
        is_whole = len(report.results) == len(self._tested.agent.test_cases or [])
        if report.interrupted or report.stopped is not None or not is_whole:
            lines = [f"Not compared with {self._base.source}, because not all cases ran"]
        else:
            code, lines = self._compare(report, code)
        note = "\n".join(line.strip() for line in lines)
        return report.model_copy(update={"notes": [*report.notes, note]}), code, lines

    def _compare(self, report: TestReport, code: ExitCode) -> tuple[ExitCode, list[str]]:
        """Return the exit code, for which cases that failed before or are flaky do not count."""
        present = self._present(report)
        failures = failures_of(self._base, present)
        further = self._run_again(failures.suspects)
        decisions = [
            decide(suspect, [run.results[at] for run in further.reports], self._options.confirm)
            for at, suspect in enumerate(failures.suspects)
        ]
        lines = [*describe_gate(self._base, present, failures, decisions), *further.notes()]
        is_clear = not failures.new and all(decision.state == "flaky" for decision in decisions)
        is_unchecked = any(result.outcome is Outcome.UNCHECKED for result in report.results)
        if further.interrupted is not None:
            code = further.interrupted
        elif code is ExitCode.TEST_FAILED and self._options.decides and not is_unchecked:
            code = ExitCode.PASSED if is_clear else code
        return code, lines

    def _present(self, report: TestReport) -> ComparedRun:
        """Return the run with hashes of what is written about its cases and metrics."""
        fingerprint = fingerprint_of(self._tested.agent)
        report = report.model_copy(update={"origin": RunOrigin(hashes=fingerprint.parts)})
        hashes = [case.hash for case in fingerprint.cases]
        case_hashes = dict(zip(case_keys(report.results), hashes, strict=True))
        return ComparedRun(report, "this run", case_hashes=case_hashes)

    def _run_again(self, suspects: Sequence[Suspect]) -> _FurtherRuns:
        """Run the suspects again, all of them together, until a run is not whole."""
        further = _FurtherRuns()
        times = self._options.confirm if suspects else 0
        for number in range(1, times + 1):
            cases = plural(len(suspects), "case")
            echo(f"Confirming {cases}: run {number} of {times}", err=True)
            session = self._session([suspect.index for suspect in suspects])
            try:
                report = session.run_to_report()
            except HoloDeckError as error:
                further.problem = str(error)
                break
            if report.interrupted:
                further.interrupted = session.interruption.exit_code
                break
            if report.stopped is not None:
                further.problem = report.stopped
                break
            further.reports.append(report)
        return further

    def _session(self, indexes: Sequence[int]) -> TestSession:
        """Return a run of some cases, each of which must run, whatever the others do."""
        agent = self._tested.agent.with_cases(indexes)
        cases = [case.model_copy(update={"fail_fast": None}) for case in agent.test_cases or []]
        settings = self._tested.settings.model_copy(update={"fail_fast": False, "maxfail": None})
        agent = agent.model_copy(update={"test_cases": cases})
        tested = replace(self._tested, agent=agent, settings=settings, resumed=None)
        display = RunDisplay(self._redactor.redact, quiet=True)
        return TestSession([tested], self._redactor, display, is_checked=True)
