"""Decide which cases of a run are regressions: they passed in the baseline and keep failing.

A case that fails once more than it did may only be noise: of 100 cases that fail in 5 % of their
runs, five fail in each run. So a case that passed before and fails now runs again on its own, and
most of these runs decide. `benchmarks/gate.py` simulates how often that is wrong.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from holodeck.lib.test_runner.run_comparison import ComparedRun
from holodeck.lib.text import one_line, plural
from holodeck.models.baseline import CaseKey, case_keys
from holodeck.models.outcome import Outcome
from holodeck.models.test_result import TestReport, TestResult

DEFAULT_CONFIRM = 3
_MAX_NAME = 80

State = Literal["regression", "flaky", "unconfirmed"]


@dataclass(frozen=True)
class Suspect:
    """A case that passed in the baseline and fails now."""

    index: int
    """Of its result in the report."""
    name: str
    passed: int
    """How often it passed in the recorded runs that the baseline counts."""
    ran: int


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
        return f"{self.suspect.name}: {self.state}, {runs}"


def suspects_of(base: ComparedRun, report: TestReport) -> list[Suspect]:
    """Return the cases that usually passed before and did not pass now, without errors."""
    before = _verdicts_before(base)
    found = []
    for index, (key, result) in enumerate(
        zip(case_keys(report.results), report.results, strict=True)
    ):
        passed, ran = before.get(key, (0, 0))
        if result.outcome is Outcome.FAILED and 2 * passed > ran:
            found.append(Suspect(index, _name(result), passed, ran))
    return found


def _verdicts_before(base: ComparedRun) -> dict[CaseKey, tuple[int, int]]:
    """Return how often each case passed, and in how many runs; one run without a history."""
    if base.history is not None and any(ran for _, ran in base.history.values()):
        return dict(base.history)
    return {
        key: (int(result.outcome.is_pass), int(result.outcome is not Outcome.SKIPPED))
        for key, result in zip(base.keys, base.report.results, strict=True)
    }


def decide(suspect: Suspect, runs: Sequence[TestResult]) -> Decision:
    """Return what the further runs of a suspect say.

    It is a regression unless most of them pass. A case that also failed in the runs that the
    baseline counts is a regression only if none of them passes. Errors are not passes.
    """
    passed = sum(one.passed for one in runs)
    if not runs:
        return Decision(suspect, 0, 0, "unconfirmed")
    was_flaky = suspect.passed < suspect.ran
    is_cleared = passed > 0 if was_flaky else 2 * passed > len(runs)
    return Decision(suspect, passed, len(runs), "flaky" if is_cleared else "regression")


def new_failures(base: ComparedRun, report: TestReport) -> list[str]:
    """Return the names of cases that fail and that the baseline does not have."""
    known = set(base.keys)
    return [
        _name(result)
        for key, result in zip(case_keys(report.results), report.results, strict=True)
        if key not in known and result.outcome is Outcome.FAILED
    ]


def describe_gate(
    base: ComparedRun, report: TestReport, decisions: Sequence[Decision]
) -> Iterator[str]:
    """Yield what the gate found, for the end of a run."""
    regressions = [one for one in decisions if one.state != "flaky"]
    yield f"Compared with {base.source}: {plural(len(regressions), 'regression')}"
    yield from (f"  {one}" for one in decisions)
    new = new_failures(base, report)
    if new:
        cases = "a new case fails" if len(new) == 1 else f"{len(new)} new cases fail"
        yield f"  {cases}, which is no regression: {one_line(', '.join(new), 300)}"
    failed = sum(one.outcome is Outcome.FAILED for one in report.results)
    before = failed - len(decisions) - len(new)
    if before > 0:
        cases = "a case fails" if before == 1 else f"{before} cases fail"
        yield f"  {cases} that failed in the baseline, too"


def _name(result: TestResult) -> str:
    return one_line(result.test_name or result.test_id or result.test_input, _MAX_NAME)
