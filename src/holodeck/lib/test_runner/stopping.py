"""Why a run ends before every case has run, and the rows of the cases that it did not come to."""

from dataclasses import dataclass
from datetime import UTC, datetime

from holodeck.models.config import ExecutionConfig
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome, SkipKind, StopKind, TestResult

MOST_REFUSALS = 3
"""So many calls in a row that a provider refuses for good end the run."""


@dataclass(frozen=True)
class Stop:
    """Why no further case is run."""

    kind: StopKind
    reason: str

    def told(self, left: int) -> str:
        """The reason with what it means for the `left` cases that have no result."""
        cases = "other case is" if left == 1 else f"other {left} cases are"
        return f"{self.reason}, so the {cases} not run"

    def row(self, case: TestCaseModel) -> TestResult:
        """The result of a case that the run did not come to."""
        return skipped(case, self.kind, self.reason)


class Stopped(Exception):
    """Raised where a run is to end at once, with what is under way."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.reason)
        self.stop = stop


class Brakes:
    """Watches the results of a run for reasons to end it."""

    def __init__(self, settings: ExecutionConfig) -> None:
        self._most_failures = most_failures(settings)
        self._fails_fast = settings.fail_fast is True
        self._failures = 0
        self._closed: dict[str | None, Stop] = {}
        self._refusals = 0

    def closed(self, case: TestCaseModel) -> Stop | None:
        """Why no further case of the case's suite is run; None if it is."""
        return self._closed.get(case.suite)

    def watch(self, case: TestCaseModel, result: TestResult, *, is_hopeless: bool) -> None:
        """Take note of a result; raises Stopped if it was one too many.

        `is_hopeless` says that every other case will fail like this one.
        """
        self._refusals = self._refusals + 1 if is_hopeless else 0
        if self._refusals >= MOST_REFUSALS:
            refused = f"{result.errors[0]}; {MOST_REFUSALS} calls in a row were refused"
            raise Stopped(Stop("refused", refused))
        is_spared = self._fails_fast and case.fail_fast is False
        self._failures += not (result.passed or is_spared)
        if self._failures == self._most_failures:
            raise Stopped(Stop("fail_fast", self._too_many(result)))
        if case.fail_fast and not result.passed:
            whose = f"suite {case.suite!r}" if case.suite else "its cases"
            why = f"{_named(result)} did not pass, and {whose} is to fail fast"
            self._closed.setdefault(case.suite, Stop("fail_fast", why))

    def _too_many(self, result: TestResult) -> str:
        if self._failures > 1:
            return f"{self._failures} cases did not pass (maxfail)"
        return f"{_named(result)} did not pass (fail_fast)"


def _named(result: TestResult) -> str:
    return repr(result.test_name or result.test_input)


def most_failures(settings: ExecutionConfig) -> int | None:
    """So many cases that do not pass end the run; None for no end."""
    return 1 if settings.fail_fast else settings.maxfail


def skipped_as_told(case: TestCaseModel) -> TestResult | None:
    """The result of a case that says of itself to be skipped; None for any other."""
    return None if case.skip is None else skipped(case, "skip", case.skip)


def skipped(case: TestCaseModel, by: SkipKind, reason: str) -> TestResult:
    """The result of a case that was not run."""
    return TestResult(
        test_name=case.name,
        test_id=case.id,
        suite=case.suite,
        tags=case.tags,
        test_input=case.said,
        expected_tools=case.expected_tools,
        ground_truth=case.ground_truth,
        passed=False,
        outcome=Outcome.SKIPPED,
        skipped_by=by,
        skip_reason=reason,
        execution_time_ms=0,
        timestamp=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
