"""Runs cases as often as they say, each run in a slot."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from holodeck.lib.retry import RetryConfig
from holodeck.lib.test_runner.case_run import CaseRun
from holodeck.lib.test_runner.tries import FinishedRun, run_with_retries
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import TestResult

Start = Callable[[int, TestCaseModel], CaseRun]
"""Makes the run of the case at a place in the file."""


class CaseRunner:
    """Tries and repeats cases; at most so many runs go on at once, whatever cases they are of.

    Args:
        start: Makes a new run of a case.
        most_at_once: The slots.
        retry_delay: The longest wait before the second try, in seconds; then it doubles.
    """

    def __init__(self, start: Start, most_at_once: int, retry_delay: float) -> None:
        self.cut_off: dict[int, TestResult] = {}
        """What the cases that were cancelled while they were graded had come to."""
        self._start = start
        self._slots = asyncio.Semaphore(most_at_once)
        self._waits = RetryConfig(base_delay=retry_delay)

    async def ran(self, index: int, case: TestCaseModel) -> FinishedRun:
        """What came of the case in the end."""
        once = partial(self._once, index, case)
        if case.repeat is None:
            async with self._slots:
                return await run_with_retries(case, once, self._waits)
        # Imported here because most cases are run once.
        from holodeck.lib.test_runner.repeats import run_repeated  # noqa: PLC0415

        return await run_repeated(case, case.repeat, partial(self._repetition, case, once))

    async def _repetition(
        self,
        case: TestCaseModel,
        once: Callable[[], Awaitable[FinishedRun]],
        is_wanted: Callable[[], bool],
    ) -> FinishedRun | None:
        async with self._slots:
            return await run_with_retries(case, once, self._waits) if is_wanted() else None

    async def _once(self, index: int, case: TestCaseModel) -> FinishedRun:
        run = self._start(index, case)
        try:
            result = await run.result()
        except asyncio.CancelledError:
            if run.cut_off is not None and case.repeat is None:
                self.cut_off[index] = run.cut_off
            raise
        return FinishedRun(result, run.failure_in(result), run.is_permanent, run.refusal)
