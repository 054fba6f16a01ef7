"""Run the same test cases on two agents, case by case, and compare the results."""

from contextlib import AsyncExitStack, suppress
from itertools import count

from holodeck.config.model_calls import merge_prices
from holodeck.config.settings import with_case_settings
from holodeck.errors import BackendInitError, ConfigError
from holodeck.lib.compare.pairs import build_comparison, build_pair
from holodeck.lib.observability import names, span
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.schedule import Lane, Schedule
from holodeck.models.agent import AGENT_KEYS, Agent
from holodeck.models.backend import PythonBackendConfig
from holodeck.models.config import ExecutionConfig
from holodeck.models.evaluation import EvaluationConfig
from holodeck.models.records.comparison import ComparedAgent, ComparisonReport, Pair

UNUSED_KEYS = ("test_cases", "evaluations", "execution", "observability")
"""The keys of the second agent's file that a comparison takes from the first one's."""


def with_tests_of(first: Agent, second: Agent, keys: tuple[str, ...] = AGENT_KEYS) -> Agent:
    """Return the second agent with the test cases, metrics and settings of the first.

    Metrics without a model of their own are judged by the model that judges the first agent.
    `keys` are those that the second agent's own file contains. Raises ConfigError for prices in
    two currencies.
    """
    evaluations = first.evaluations
    if first.judge_model is not None:
        evaluations = evaluations or EvaluationConfig.model_construct(metrics=[])
        evaluations = evaluations.model_copy(update={"model": first.judge_model})
    shared = {
        "evaluations": evaluations,
        "prices": merge_prices([first.prices, second.prices]),
    }
    return first.model_copy(update=shared).with_agent_of(second, keys)


def unused_keys(first: Agent, second: Agent, settings: ExecutionConfig) -> list[str]:
    """Return the keys of the second agent that a comparison ignores although they differ.

    The cases of the first agent have the settings of the run written into them.
    """
    with suppress(ConfigError):  # such cases differ
        second = with_case_settings(second, settings)
    ours, theirs = (
        one.model_dump(include=set(UNUSED_KEYS), exclude_none=True) for one in (first, second)
    )
    return [key for key in UNUSED_KEYS if key in theirs and theirs[key] != ours.get(key)]


TAP_IN_PROCESS = (
    "the tap cannot tell the requests of two agents in one process apart; compare agents with"
    " '{type: process, …}'"
)


class AgentComparison:
    """Runs each case on the first agent, then on the second, within the limits of one run.

    Both executors must have the same cases in the same order, and the same settings.
    """

    def __init__(self, first: TestExecutor, second: TestExecutor, sources: tuple[str, str]) -> None:
        """`sources` are where the agents come from, for reports."""
        self._executors = (first, second)
        self._sources = sources

    async def execute_tests(self) -> ComparisonReport:
        """Run all cases on both agents; raises what `TestExecutor.execute_tests` raises."""
        first = self._executors[0]
        for executor in self._executors:
            backend = executor.agent_config.backend
            if isinstance(backend, PythonBackendConfig) and backend.tap:
                raise ConfigError("backend.tap", TAP_IN_PROCESS)
        left = [executor.begin() for executor in self._executors]
        with span(names.RUN, {names.SUITE_NAME: f"{first.agent_config.name} (A and B)"}) as current:
            if any(left):
                async with AsyncExitStack() as stack:
                    lanes = [
                        await self._open(stack, executor, source)
                        for executor, source in zip(self._executors, self._sources, strict=True)
                    ]
                    await Schedule(lanes, first.config).run()
            report = self.report()
            current.set({names.SUITE_STATUS: "success" if report.is_complete else "failure"})
        return report

    async def _open(self, stack: AsyncExitStack, executor: TestExecutor, source: str) -> Lane:
        try:
            return await stack.enter_async_context(executor.open_lane())
        except BackendInitError as error:
            raise BackendInitError(f"{source}: {error}") from error

    def pair(self, index: int) -> Pair:
        """Return the pair of the case at that index, as far as its results are known."""
        first, second = self._executors
        return build_pair(
            index, first.cases[index], first.result_of(index), second.result_of(index)
        )

    def report(self, *, interrupted: bool = False) -> ComparisonReport:
        """Return the comparison of the results so far."""
        prices = self._executors[0].agent_config.prices
        first, second = (
            ComparedAgent(
                name=executor.agent_config.name,
                source=source,
                run=executor.options.run_id(),
                report=executor.report(interrupted=interrupted),
            )
            for executor, source in zip(self._executors, self._sources, strict=True)
        )
        places = count(), count()  # of the results, of which a case may have none
        pairs = [
            pair.model_copy(
                update={
                    "first_at": None if pair.first is None else next(places[0]),
                    "second_at": None if pair.second is None else next(places[1]),
                }
            )
            for pair in map(self.pair, range(len(self._executors[0].cases)))
        ]
        return build_comparison(first, second, pairs, None if prices is None else prices.unit)

    async def shutdown(self) -> None:
        """Close both agents. May be called twice."""
        for executor in self._executors:
            await executor.shutdown()
