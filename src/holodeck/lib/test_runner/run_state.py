"""The results of a run so far, the only place that keeps them, and why other cases are not run."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from holodeck.lib.reports.costs import with_cost
from holodeck.lib.test_runner.case_state import result_of_case
from holodeck.models.agent import UNLOCATED, Agent
from holodeck.models.results.outcome import StopKind
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome, SkipKind, TestResult

logger = logging.getLogger(__name__)

_ANSWERED = frozenset(Outcome) - {Outcome.AGENT_ERROR, Outcome.SKIPPED}


@dataclass(frozen=True)
class StopReason:
    """Why no further case is run."""

    kind: StopKind
    reason: str

    def message(self, left: int) -> str:
        """Return the reason with what it means for the `left` cases without a result."""
        cases = "other case is" if left == 1 else f"other {left} cases are"
        return f"{self.reason}, so the {cases} not run"

    def row(self, case: TestCaseModel) -> TestResult:
        """Return the result of a case that the stopped run did not start."""
        return _skipped_result(case, self.kind, self.reason)


class RunState:
    """The results so far, and why the other cases are not run.

    A result gets its cost and its location, and loses its secrets, before anything else sees it.

    Args:
        agent: The agent with all its cases, in the order of the file.
        on_result: Called with each new result and the index of its case.
        carried_over: Results of an earlier run, by the index of their case.
        clean: Returns a result without secrets; None leaves it as it is.
    """

    def __init__(
        self,
        agent: Agent,
        on_result: Callable[[int, TestResult], None],
        carried_over: Mapping[int, TestResult] | None = None,
        clean: Callable[[TestResult], TestResult] | None = None,
    ) -> None:
        self._agent = agent
        self._cases = agent.test_cases or []
        self._on_result = on_result
        self._clean = clean
        self._results: dict[int, TestResult] = {}
        self.has_answers = False
        """Whether the agent has answered any case."""
        for index, result in (carried_over or {}).items():
            self._keep(index, with_cost(result, agent))
        self.stop: StopReason | None = None
        self.stopped: str | None = None
        """Why not every case is run, as a message; None if nothing stopped the run."""

    @property
    def results(self) -> list[TestResult]:
        """The results there are now, in the order of the file."""
        return [self._results[index] for index in sorted(self._results)]

    @property
    def remaining(self) -> Sequence[int]:
        """The indexes of the cases without a result."""
        return [index for index in range(len(self._cases)) if index not in self._results]

    def case(self, index: int) -> TestCaseModel:
        """Return the case at that index."""
        return self._cases[index]

    def result_of(self, index: int) -> TestResult | None:
        """Return the result of the case at that index; None without a result."""
        return self._results.get(index)

    def add(self, index: int, result: TestResult) -> TestResult:
        """Add the result of the case at that index; return it as it is kept."""
        result = with_cost(result, self._agent)
        location = self._agent.location("test_cases", index)
        if location != UNLOCATED:
            result = result.model_copy(update={"location": location})
        if self._clean is not None:
            result = self._clean(result)
        result = result.named()
        self._keep(index, result)
        self._on_result(index, result)
        return result

    def _keep(self, index: int, result: TestResult) -> None:
        self._results[index] = result
        self.has_answers |= result.outcome in _ANSWERED

    def add_skipped(self) -> None:
        """Add the results of the cases with `skip`."""
        for index in self.remaining:
            case = self._cases[index]
            if case.skip is not None:
                self.add(index, _skipped_result(case, "skip", case.skip))

    def skip_remaining(self, stop: StopReason) -> None:
        """Add the cases that are left as skipped."""
        left = self.remaining
        if not left:
            return
        self.stop, self.stopped = stop, stop.message(len(left))
        logger.error("%s", self.stopped)
        for index in left:
            self.add(index, stop.row(self._cases[index]))


def _skipped_result(case: TestCaseModel, by: SkipKind, reason: str) -> TestResult:
    """Return the result of a case that was not run."""
    return result_of_case(
        case,
        passed=False,
        outcome=Outcome.SKIPPED,
        skipped_by=by,
        skip_reason=reason,
        execution_time_ms=0,
    )
