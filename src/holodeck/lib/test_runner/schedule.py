"""Run the cases that are left, with retries and repetitions, until all have run or it stops."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from holodeck.errors import ConfigError
from holodeck.lib.llm.retry import RetryConfig
from holodeck.lib.test_runner.case_run import CaseRun
from holodeck.lib.test_runner.costs import with_cost
from holodeck.lib.test_runner.stop_policy import Budget, RunStopped, StopPolicy, StopReason
from holodeck.lib.test_runner.tries import FinishedRun, run_with_retries
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome, TestResult

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


_ANSWERED = frozenset(Outcome) - {Outcome.AGENT_ERROR, Outcome.SKIPPED}


class Schedule:
    """Takes the cases that are left to workers, until all have run or the run has to end.

    Args:
        standing: Knows the cases that are left, and takes their results.
        runner: Runs a case.
        agent: Whose cases these are; its prices tell what they cost.
        config: The limits of the run, every value given.
        begins: Told of each case right before it runs.
    """

    def __init__(
        self,
        run_state: RunState,
        runner: CaseRunner,
        agent: Agent,
        config: ExecutionConfig,
        begins: Callable[[TestCaseModel], None],
    ) -> None:
        self._run_state = run_state
        self._runner = runner
        self._agent = agent
        self._run_timeout = config.run_timeout
        self._begins = begins
        answered = any(one.outcome in _ANSWERED for one in run_state.results)
        self._stop_policy = StopPolicy(config, agent, has_answers=answered)
        self._budget = Budget(config, agent.prices.unit if agent.prices else "")

    async def run(self, workers: int) -> None:
        """Run the cases that are left; why some are not run is told to the standing.

        Ten thousand cases are not as many tasks: each of so many workers takes one after the other.
        """
        left = self._run_state.left
        waiting = iter(left)
        try:
            async with self._time_limit(), asyncio.TaskGroup() as group:
                for _ in range(min(workers, len(left))):
                    group.create_task(self._work(waiting))
            if self._budget.refused is not None:
                self._run_state.give_up(StopReason("budget", self._budget.refused))
        except asyncio.CancelledError:  # of the whole run, by Ctrl-C say
            for index, result in self._runner.cut_off.items():
                self._run_state.keep(index, with_cost(result, self._agent))
            raise
        except BaseExceptionGroup as errors:
            first = _first(errors)
            if not isinstance(first, RunStopped):
                raise first from None
            self._run_state.give_up(first.stop)

    @asynccontextmanager
    async def _time_limit(self) -> AsyncIterator[None]:
        """Ends what runs when the time of the whole run is over; waiting counts."""
        limit = asyncio.timeout(self._run_timeout)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            why = f"the run's time limit of {self._run_timeout:g} s is over"
            self._run_state.give_up(StopReason("run_timeout", why))

    async def _work(self, waiting: Iterator[Placed]) -> None:
        for index, case in waiting:
            closed = self._stop_policy.closed(case)
            if closed is not None:
                self._run_state.keep(index, closed.row(case))
                continue
            if not await self._budget.admits():
                return
            self._begins(case)
            ran = await self._runner.ran(index, case)
            result = with_cost(ran.result, self._agent)
            self._run_state.keep(index, result)
            self._stop_policy.watch(
                case, result, is_permanent=ran.is_permanent, refusal=ran.refusal
            )
            await self._budget.pay(result)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group; configuration errors before all others."""
    flat = [error for error in _flattened(errors) if not isinstance(error, asyncio.CancelledError)]
    return next((error for error in flat if isinstance(error, ConfigError)), flat[0])


def _flattened(errors: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _flattened(error)
        else:
            yield error
