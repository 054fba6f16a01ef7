"""How a run stands: what has come of each case so far, and why the others are not run."""

import logging
from collections.abc import Callable, Mapping, Sequence

from holodeck.lib.test_runner.stop_policy import StopReason
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import TestResult

logger = logging.getLogger(__name__)

Placed = tuple[int, TestCaseModel]
"""A case with its place in the file."""


class RunState:
    """The results so far.

    Args:
        cases: All cases, in the order of the file.
        tell: Told of each new result with the case's place.
        carried_over: Results that are there already, of which nobody is told.
    """

    def __init__(
        self,
        cases: Sequence[TestCaseModel],
        tell: Callable[[int, TestResult], None],
        carried_over: Mapping[int, TestResult] | None = None,
    ) -> None:
        self._cases = cases
        self._tell = tell
        self._results = dict(carried_over or {})
        self.stop: StopReason | None = None
        self.stopped: str | None = None
        """Why not every case is run, in words; None while nothing speaks against it."""

    @property
    def results(self) -> list[TestResult]:
        """In the order of the file."""
        return [self._results[index] for index in sorted(self._results)]

    @property
    def left(self) -> list[Placed]:
        """The cases without a result."""
        return [one for one in enumerate(self._cases) if one[0] not in self._results]

    def keep(self, index: int, result: TestResult) -> None:
        """Take the result of the case at that place."""
        self._results[index] = result
        self._tell(index, result)

    def skip(self, row: Callable[[TestCaseModel], TestResult | None]) -> None:
        """Take the row instead of a run for each case left that gets one."""
        for index, case in self.left:
            result = row(case)
            if result is not None:
                self.keep(index, result)

    def give_up(self, stop: StopReason) -> None:
        """List the cases that the run did not come to."""
        left = len(self.left)
        if left == 0:
            return
        self.stop, self.stopped = stop, stop.told(left)
        logger.error("%s", self.stopped)
        self.skip(stop.row)
