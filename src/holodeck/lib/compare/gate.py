"""`holodeck test --baseline`: which failures are regressions, and do they fail again?

A case that fails once more than it did may only be noise: of 100 cases that fail in 5 % of their
runs, five fail in each run. So a case that passed before and fails now runs again on its own, and
most of these runs decide. `benchmarks/gate.py` simulates how often that is wrong.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from holodeck.errors import ConfigError, ExitCode, HoloDeckError
from holodeck.lib.compare.run_comparison import ComparedRun, case_name, of_one_agent, read_side
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.records.run_store import RunStore
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.text import one_line, plural
from holodeck.lib.test_runner.progress import RunDisplay
from holodeck.lib.test_runner.session import SessionAgent, TestSession
from holodeck.lib.ui.live import echo
from holodeck.models.records.record import CaseKey, case_keys, checks_of
from holodeck.models.results.origin import RunOrigin
from holodeck.models.results.outcome import DECIDED, Outcome
from holodeck.models.test_result import TestReport, TestResult

DEFAULT_CONFIRM = 3
_MAX_NAMES = 300
_RUN_ID = re.compile(r"\d{8}-\d{6}-\d{6}-[0-9a-f]{6}")

State = Literal["regression", "flaky", "not confirmed"]


@dataclass(frozen=True)
class Suspect:
    """A case that passed in the baseline and fails now."""

    index: int
    """Of its result in the report."""
    name: str
    was_flaky: bool = False
    """Whether it also failed in the runs that the baseline counts."""


@dataclass(frozen=True)
class Failures:
    """The cases that fail, by what the baseline says of them."""

    suspects: Sequence[Suspect]
    known: Sequence[str]
    """Names of those that failed in the baseline, too."""
    new: Sequence[str]
    """Names of those that the baseline does not have, or has no verdict on."""


@dataclass(frozen=True)
class Decision:
    """What the further runs of a suspect say."""

    suspect: Suspect
    passed: int
    ran: int
    state: State

    def __str__(self) -> str:
        """Such as `greets: regression, failed in 3 of 3 further runs`."""
        failed = self.ran - self.passed
        runs = f"failed in {failed} of {plural(self.ran, 'further run')}"
        return f"{self.suspect.name}: {self.state}" + (f", {runs}" if self.ran else "")


def require_later(base: ComparedRun, head: ComparedRun) -> None:
    """Raise ConfigError unless HEAD is another run than BASE, and not an older run.

    A test run that could not begin records nothing, and `last` is then the run before it, which
    may be the baseline itself. Ids of runs in a folder sort as the runs began, also after the
    clock was put back; times only decide where a side has no record.
    """
    is_same = set(head.ids) <= set(base.ids) if head.ids else head.source == base.source
    if is_same:
        raise ConfigError(
            "HEAD",
            f"is the run that BASE is, too ({head.title}), so nothing can differ; if"
            " `holodeck test` ran since, it recorded nothing: see why, and run it again",
        )
    if base.is_of_second_agent != head.is_of_second_agent:
        return  # the runs of one comparison, which began together
    is_older = _time(head) < _time(base)
    before, now = (max(filter(_RUN_ID.fullmatch, side.ids), default="") for side in (base, head))
    if before and now:
        is_older = now < before
    if is_older:
        raise ConfigError(
            "HEAD",
            f"({head.title}) is older than BASE ({base.title}); run `holodeck test` again,"
            " or name the older run first",
        )


def _time(side: ComparedRun) -> datetime:
    try:
        time = datetime.fromisoformat(side.report.timestamp)
    except ValueError as error:
        shown = one_line(repr(side.report.timestamp), 80)
        raise ConfigError(side.source, f"its timestamp {shown} is not a time") from error
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def failures_of(base: ComparedRun, now: ComparedRun) -> Failures:
    """Return the cases that fail, by what the baseline says of them.

    Only a case that is known to have failed is excused. A renamed case is new, and a case that
    ended in an error in the baseline has no verdict there.
    """
    suspects: list[Suspect] = []
    known: list[str] = []
    new: list[str] = []
    for index, (key, result) in enumerate(now.results.items()):
        if result.outcome is not Outcome.FAILED:
            continue
        name, blessed = case_name(result), base.results.get(key)
        passed, ran = (base.history or {}).get(key, (0, 0))
        if blessed is None or not (ran or blessed.outcome in DECIDED):
            new.append(name)
        elif has_passed(blessed.passed, passed, ran):
            was_flaky = passed < ran or blessed.outcome is Outcome.FLAKY
            suspects.append(Suspect(index, name, was_flaky))
        else:
            known.append(name)
    return Failures(suspects, known, new)


def has_passed(blessed: bool, passed: int, ran: int) -> bool:
    """Whether a case passed in the baseline: in its run, or in most of the runs that it counts."""
    return blessed or 2 * passed > ran


def decide(suspect: Suspect, runs: Sequence[TestResult], planned: int) -> Decision:
    """Return what the further runs of a suspect say, `planned` of which were to be complete.

    It is a regression unless most of them pass. A case that also failed in the runs that the
    baseline counts is a regression only if none of them passes. Errors are not passes.
    """
    passed = sum(run.passed for run in runs)
    is_cleared = passed > 0 if suspect.was_flaky else 2 * passed > planned
    if is_cleared:
        return Decision(suspect, passed, len(runs), "flaky")
    state: State = "regression" if len(runs) == planned > 0 else "not confirmed"
    return Decision(suspect, passed, len(runs), state)


def describe_gate(
    base: ComparedRun, now: ComparedRun, failures: Failures, decisions: Sequence[Decision]
) -> Iterator[str]:
    """Yield what the gate found, for the end of a run."""
    report = now.report
    regressions = [decision for decision in decisions if decision.state != "flaky"]
    yield f"Compared with {base.source}: {plural(len(regressions), 'regression')}"
    if base.report.agent_name != report.agent_name:
        yield f"  the baseline is of the agent {one_line(base.report.agent_name, 80)}"
    yield from (f"  {decision}" for decision in decisions)
    yield from _list_cases(failures.new, "a new case fails", "{} new cases fail")
    text = "{} failed in the baseline, too"
    yield from _list_cases(failures.known, text.format("a case"), text.format("{} cases"))
    yield from _other_changes(base, now)
    yield from _weaker_checks(base, now)


def _other_changes(base: ComparedRun, now: ComparedRun) -> Iterator[str]:
    """Yield which cases pass that did not before, which are new, and which vanished."""
    before, after = base.results, now.results
    passing = {key: result for key, result in after.items() if result.outcome is Outcome.PASSED}
    fixed = [key for key in passing if key in before and before[key].outcome is Outcome.FAILED]
    new = [key for key in passing if key not in before]
    is_part = now.report.selection is not None
    vanished = [] if is_part else [key for key in before if key not in after]
    lost = [key for key in vanished if before[key].passed]
    others = [key for key in vanished if not before[key].passed]
    skipped = [
        key
        for key, result in after.items()
        if result.outcome is Outcome.SKIPPED and key in before and before[key].passed
    ]
    for keys, single, several in (
        (fixed, "a case passes that failed in", "{} cases pass that failed in"),
        (new, "a new case passes, which is not in", "{} new cases pass, which are not in"),
        (skipped, "a case is skipped that passed in", "{} cases are skipped that passed in"),
        (lost, "a case is gone that passed in", "{} cases are gone that passed in"),
        (others, "a case is gone that did not pass in", "{} are gone that did not pass in"),
    ):
        names = [case_name(after.get(key) or before[key]) for key in keys]
        yield from _list_cases(names, f"{single} the baseline", f"{several} the baseline")


def _weaker_checks(base: ComparedRun, now: ComparedRun) -> Iterator[str]:
    """Yield which cases pass that were written otherwise when the baseline was made."""
    passing = {
        key: result for key, result in now.results.items() if result.outcome is Outcome.PASSED
    }
    named: set[CaseKey] = set()
    for key, result in passing.items():
        weaker = list(_weaker(base.checks.get(key, {}), checks_of(result)))
        if weaker:
            named.add(key)
            shown = one_line(", ".join(weaker), _MAX_NAMES)
            yield f"  {case_name(result)}: passes with weaker checks than in the baseline: {shown}"
    changed = [
        case_name(result)
        for key, result in passing.items()
        if key not in named
        and key in base.case_hashes
        and now.case_hashes.get(key, base.case_hashes[key]) != base.case_hashes[key]
    ]
    written = "not written as in the baseline"
    yield from _list_cases(
        changed, f"a case passes that is {written}", f"{{}} cases pass that are {written}"
    )
    hashes = [side.hashes.get("metrics") for side in (base, now)]
    if all(hashes) and hashes[0] != hashes[1] and not named:
        yield "  'evaluations' is not written as in the baseline"


def _weaker(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> Iterator[str]:
    """Yield each check that is gone, or whose threshold is lower."""
    for name, threshold in before.items():
        if name not in after:
            yield f"without {name!r}"
            continue
        present = after[name]
        if threshold is not None and (present is None or present < threshold):
            shown = "without a threshold" if present is None else f"from {present:g} on"
            yield f"{name!r} {shown}, not {threshold:g}"


def _list_cases(names: Sequence[str], single: str, several: str) -> Iterator[str]:
    """Yield a line with the names; nothing if there are none."""
    if names:
        words = single if len(names) == 1 else several.format(len(names))
        yield f"  {words}: {one_line(', '.join(names), _MAX_NAMES)}"


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
