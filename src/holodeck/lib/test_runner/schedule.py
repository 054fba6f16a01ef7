"""Run the cases that are left, with retries and repetitions, until all have run or it stops."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from holodeck.errors import ConfigError
from holodeck.lib.llm.retry import RetryConfig
from holodeck.lib.reports.costs import with_cost
from holodeck.lib.test_runner.case_run import CaseRun, FinishedRun, run_with_retries
from holodeck.lib.test_runner.stop_policy import Budget, RunStopped, StopPolicy, StopReason
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome, TestResult

logger = logging.getLogger(__name__)

IndexedCase = tuple[int, TestCaseModel]
"""A case with its index in the file."""
_ANSWERED = frozenset(Outcome) - {Outcome.AGENT_ERROR, Outcome.SKIPPED}


class RunState:
    """The results so far, and why the other cases are not run.

    Args:
        cases: All cases, in the order of the file.
        on_result: Called with each new result and the index of its case.
        carried_over: Results of an earlier run, by the index of their case.
    """

    def __init__(
        self,
        cases: Sequence[TestCaseModel],
        on_result: Callable[[int, TestResult], None],
        carried_over: Mapping[int, TestResult] | None = None,
    ) -> None:
        self._cases = cases
        self._on_result = on_result
        self._results = dict(carried_over or {})
        self.stop: StopReason | None = None
        self.stopped: str | None = None
        """Why not every case is run, as a message; None if nothing stopped the run."""

    @property
    def results(self) -> list[TestResult]:
        """The results, in the order of the file."""
        return [self._results[index] for index in sorted(self._results)]

    @property
    def left(self) -> list[IndexedCase]:
        """The cases without a result."""
        return [one for one in enumerate(self._cases) if one[0] not in self._results]

    def add(self, index: int, result: TestResult) -> None:
        """Add the result of the case at that index."""
        self._results[index] = result
        self._on_result(index, result)

    def skip(self, row: Callable[[TestCaseModel], TestResult | None]) -> None:
        """Add `row(case)` for each case left where that is not None."""
        for index, case in self.left:
            result = row(case)
            if result is not None:
                self.add(index, result)

    def stop_run(self, stop: StopReason) -> None:
        """Add the cases that are left as skipped."""
        left = len(self.left)
        if left == 0:
            return
        self.stop, self.stopped = stop, stop.message(left)
        logger.error("%s", self.stopped)
        self.skip(stop.row)


class Schedule:
    """Gives the cases that are left to workers, until all have run or the run has to stop.

    Args:
        run_state: Knows the cases that are left, and takes their results.
        new_run: Returns a new run of the case at that index.
        agent: The agent of the cases; its prices say what they cost.
        config: The limits of the run, every value given.
        on_start: Called with each case right before it runs.
        concurrency: How many cases or repetitions may run at once.
    """

    def __init__(
        self,
        run_state: RunState,
        new_run: Callable[[int, TestCaseModel], CaseRun],
        agent: Agent,
        config: ExecutionConfig,
        on_start: Callable[[TestCaseModel], None],
        concurrency: int,
    ) -> None:
        self._run_state = run_state
        self._new_run = new_run
        self._agent = agent
        self._run_timeout = config.run_timeout
        self._on_start = on_start
        self._concurrency = concurrency
        self._slots = asyncio.Semaphore(concurrency)
        self._backoff = RetryConfig(base_delay=config.retry_delay or 0)
        has_answers = any(one.outcome in _ANSWERED for one in run_state.results)
        self._stop_policy = StopPolicy(config, agent, has_answers=has_answers)
        self._budget = Budget(config, agent.prices.unit if agent.prices else "")
        self._running: dict[int, CaseRun] = {}
        """The runs of cases that are not repeated, by the index of their case."""

    async def run(self) -> None:
        """Run the cases that are left.

        A few workers take one case after the other, as ten thousand tasks would be slow.
        Repetitions are tasks of their own, so a semaphore limits them all.
        """
        left = self._run_state.left
        waiting = iter(left)
        try:
            async with self._time_limit(), asyncio.TaskGroup() as group:
                for _ in range(min(self._concurrency, len(left))):
                    group.create_task(self._work(waiting))
            if self._budget.refused is not None:
                self._run_state.stop_run(StopReason("budget", self._budget.refused))
        except asyncio.CancelledError:  # of the whole run, such as by Ctrl-C
            for index, running in self._running.items():
                result = running.interrupted_result()
                if result is not None:
                    self._run_state.add(index, with_cost(result, self._agent))
            raise
        except BaseExceptionGroup as errors:
            first = _first(errors)
            if not isinstance(first, RunStopped):
                raise first from None
            self._run_state.stop_run(first.stop)

    @asynccontextmanager
    async def _time_limit(self) -> AsyncIterator[None]:
        """Cancel what runs when the time of the whole run is over, waiting included."""
        limit = asyncio.timeout(self._run_timeout)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            why = f"the run exceeded its time limit of {self._run_timeout:g} s"
            self._run_state.stop_run(StopReason("run_timeout", why))

    async def _work(self, waiting: Iterator[IndexedCase]) -> None:
        for index, case in waiting:
            stopped = self._stop_policy.stopped_for(case)
            if stopped is not None:
                self._run_state.add(index, stopped.row(case))
                continue
            if not await self._budget.admit():
                return
            self._on_start(case)
            finished = await self._run_case(index, case)
            result = with_cost(finished.result, self._agent)
            self._run_state.add(index, result)
            self._stop_policy.add_result(
                case, result, is_permanent=finished.is_permanent, refusal=finished.refusal
            )
            await self._budget.pay(result)

    async def _run_case(self, index: int, case: TestCaseModel) -> FinishedRun:
        """Run a case with its retries and repetitions."""
        if case.repeat is None:
            async with self._slots:
                return await run_with_retries(case, partial(self._once, index, case), self._backoff)
        # Imported here because most cases are run once.
        from holodeck.lib.test_runner.repeats import run_repeated  # noqa: PLC0415

        async def repetition(is_wanted: Callable[[], bool]) -> FinishedRun | None:
            async with self._slots:
                if not is_wanted():
                    return None
                run = lambda: self._new_run(index, case).run()  # noqa: E731
                return await run_with_retries(case, run, self._backoff)

        return await run_repeated(case, case.repeat, repetition)

    async def _once(self, index: int, case: TestCaseModel) -> FinishedRun:
        self._running[index] = self._new_run(index, case)
        finished = await self._running[index].run()
        del self._running[index]
        return finished


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group, configuration errors before all others."""
    flat = [error for error in _flattened(errors) if not isinstance(error, asyncio.CancelledError)]
    return next((error for error in flat if isinstance(error, ConfigError)), flat[0])


def _flattened(errors: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _flattened(error)
        else:
            yield error
