"""When which case runs, and when no further one does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from holodeck.errors import ConfigError
from holodeck.lib.test_runner.budget import Budget
from holodeck.lib.test_runner.case_runner import CaseRunner
from holodeck.lib.test_runner.costs import with_cost
from holodeck.lib.test_runner.run_state import Placed, RunState
from holodeck.lib.test_runner.stop_policy import RunStopped, StopPolicy, StopReason
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome

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
