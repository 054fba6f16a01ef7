"""Run the cases that are left, with retries and repetitions, until all have run or it stops."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Protocol

from holodeck.errors import ConfigError, ExecutionError
from holodeck.lib.backends.base import AgentBackend, capabilities_of
from holodeck.lib.llm.limiter import MAX_SLOTS
from holodeck.lib.llm.retry import RetryConfig
from holodeck.lib.test_runner.case_run import FinishedRun, run_with_retries
from holodeck.lib.test_runner.run_state import RunState, StopReason
from holodeck.lib.test_runner.scheduling.stop_policy import Budget, RunStopped, StopPolicy
from holodeck.models.agent import Agent
from holodeck.models.backend import PythonBackendConfig
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import ProviderEnum
from holodeck.models.results.outcome import ModelCost
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import TestResult

ONE_AT_A_TIME = (
    "the cases ran one after the other in each process, because 'tap: true' cannot tell the"
    " requests of Python code apart; '--workers' runs several"
)


def concurrency_of(
    backend: AgentBackend,
    agent: Agent,
    config: ExecutionConfig,
    *,
    is_injected: bool,
    note: Callable[[str], None],
) -> int:
    """Return how many cases may run at once.

    `auto` means as many as the rate limits of a provider allow. The user's own code has no such
    limit and may not be safe to run concurrently: one case at a time, or a few if the code is
    async and the cases share no object. A local model answers one request at a time anyway.

    Args:
        backend: The agent, ready to be called.
        agent: Its configuration.
        config: The settings of the run.
        is_injected: Whether the caller gave the agent as an object.
        note: Called with why a number in the settings is not used.
    """
    setting, model, named = config.parallel_test_cases, agent.model, agent.backend
    if model is not None and model.provider is ProviderEnum.LOCAL and named is None:
        return 1
    if isinstance(named, PythonBackendConfig) and named.tap:
        if isinstance(setting, int) and setting > 1:
            note(ONE_AT_A_TIME)
        return 1
    if isinstance(setting, int):
        return setting
    concurrency = capabilities_of(backend).concurrency
    if concurrency is not None:
        return concurrency
    return 1 if is_injected else MAX_SLOTS


_CANCELLED = "code under test cancelled the task of a case; let it cancel only tasks of its own"


class RunningCase(Protocol):
    """One run of a case, in this process or in another."""

    async def run(self) -> FinishedRun:
        """Run the case. Only cancellation and errors that end all runs are raised."""

    def interrupted_result(self) -> TestResult | None:
        """Return the result of a cancelled run; None if nothing was graded by then."""


@dataclass(frozen=True)
class Lane:
    """An agent in a schedule."""

    agent: Agent
    run_state: RunState
    """Knows the cases that are left, and takes their results."""
    new_run: Callable[[int, TestCaseModel, int], RunningCase]
    """Returns a new run of the case at that index, with the number of the repetition, from 1."""
    on_start: Callable[[TestCaseModel], None]
    """Called with each case right before it runs."""
    concurrency: int
    """How many cases or repetitions may run at once."""
    preparation_costs: Sequence[ModelCost] = ()
    """What models cost that were asked before the first case."""


_CaseOnAgent = tuple[int, int]
"""The number of an agent, and the index of a case."""


class Schedule:
    """Gives the cases that are left to workers, until all have run or the run has to stop.

    Several agents run the same cases in turn: a case ends on an agent before it begins on the next,
    because both may change the same data for it, however many cases run at once. They share all
    limits, and only a failure of the last agent where the others passed counts for
    `fail_fast` and `maxfail`.

    Args:
        lanes: The agents.
        config: The limits of the run, every value given.
    """

    def __init__(self, lanes: Sequence[Lane], config: ExecutionConfig) -> None:
        self._lanes = lanes
        self._run_timeout = config.run_timeout
        self._concurrency = min(lane.concurrency for lane in lanes)
        self._slots = asyncio.Semaphore(self._concurrency)
        self._backoff = RetryConfig(base_delay=config.retry_delay or 0)
        self._stop_policies = [
            StopPolicy(config, lane.agent, has_answers=lane.run_state.has_answers) for lane in lanes
        ]
        prices = lanes[0].agent.prices
        self._budget = Budget(config, prices.unit if prices else "")
        for lane in lanes:
            self._budget.spend_before(lane.preparation_costs, lane.agent.prices)
        self._running: dict[tuple[int, int], RunningCase] = {}
        """The runs of cases that are not repeated, by the numbers of agent and case."""

    async def run(self) -> None:
        """Run the cases that are left.

        A few workers take one case after the other, as ten thousand tasks would be slow.
        Repetitions are tasks of their own, so a semaphore limits them all.
        """
        left = [{*lane.run_state.remaining} for lane in self._lanes]
        indexes = sorted(set().union(*left))
        waiting = (
            [(number, index) for number, of_agent in enumerate(left) if index in of_agent]
            for index in indexes
        )
        try:
            async with self._time_limit():
                async with asyncio.TaskGroup() as group:
                    count = min(self._concurrency, len(indexes))
                    workers = [group.create_task(self._work(waiting)) for _ in range(count)]
                if any(worker.cancelled() for worker in workers):  # and not the run
                    raise ExecutionError(_CANCELLED)
            if self._budget.refused is not None:
                self._stop_run(StopReason("budget", self._budget.refused))
        except asyncio.CancelledError:  # of the whole run, such as by Ctrl-C
            for (number, index), running in self._running.items():
                result = running.interrupted_result()
                if result is not None:
                    self._lanes[number].run_state.add(index, result)
            raise
        except BaseExceptionGroup as errors:
            first = _first(errors)
            if not isinstance(first, RunStopped):
                raise first from None
            self._stop_run(first.stop)

    def _stop_run(self, stop: StopReason) -> None:
        for lane in self._lanes:
            lane.run_state.skip_remaining(stop)

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
            self._stop_run(StopReason("run_timeout", why))

    async def _work(self, waiting: Iterator[list[_CaseOnAgent]]) -> None:
        for number, index in chain.from_iterable(waiting):
            lane = self._lanes[number]
            case = lane.run_state.case(index)
            stopped = self._stop_policies[-1].reason_to_stop(case)
            if stopped is not None:
                lane.run_state.add(index, stopped.row(case))
                continue
            if not await self._budget.admit():
                return
            lane.on_start(case)
            finished = await self._run_case(number, index, case)
            policy = self._stop_policies[number]
            result = policy.with_hint(finished.result, finished.refusal)
            result = lane.run_state.add(index, result)
            policy.count_refusal(result, finished.refusal, is_permanent=finished.is_permanent)
            self._count_failure(index, case)
            await self._budget.add_result(result)

    def _count_failure(self, index: int, case: TestCaseModel) -> None:
        """Count the last agent's result, if the case has passed on all others by now."""
        *others, last = (lane.run_state.result_of(index) for lane in self._lanes)
        if last is not None and all(other is not None and other.passed for other in others):
            self._stop_policies[-1].count_failure(case, last)

    async def _run_case(self, number: int, index: int, case: TestCaseModel) -> FinishedRun:
        """Run a case with its retries and repetitions."""
        if case.repeat is None:
            once = partial(self._once, number, index, case)
            async with self._slots:
                return await run_with_retries(case, once, self._backoff)
        # Imported here because most cases are run once.
        from holodeck.lib.test_runner.scheduling.repeats import run_repeated  # noqa: PLC0415

        async def repetition(at: int, is_wanted: Callable[[], bool]) -> FinishedRun | None:
            async with self._slots:
                if not is_wanted():
                    return None
                run = lambda: self._lanes[number].new_run(index, case, at).run()  # noqa: E731
                return await run_with_retries(case, run, self._backoff)

        return await run_repeated(case, case.repeat, repetition)

    async def _once(self, number: int, index: int, case: TestCaseModel) -> FinishedRun:
        running = self._running[number, index] = self._lanes[number].new_run(index, case, 1)
        finished = await running.run()
        del self._running[number, index]
        return finished


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group, configuration errors before all others."""
    firsts = [
        _first(error) if isinstance(error, BaseExceptionGroup) else error
        for error in errors.exceptions
        if not isinstance(error, asyncio.CancelledError)
    ]
    return next((error for error in firsts if isinstance(error, ConfigError)), firsts[0])
