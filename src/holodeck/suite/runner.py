"""Runs suites: each is an agent with test cases, whose one metric are the scorers."""

import inspect
import logging
import math
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from holodeck.config.defaults import DEFAULT_EXECUTION_CONFIG
from holodeck.errors import ConfigError, EvaluationError, NothingSelected
from holodeck.lib.evaluators.base import Observation, RetryConfig, Score
from holodeck.lib.evaluators.observation_metrics import CustomEvaluator
from holodeck.lib.processes.process_exit import process_exit_forbidden
from holodeck.lib.processes.threads import BackgroundLoop, call_user_function
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.options import RunOptions
from holodeck.lib.test_runner.run_state import StopReason
from holodeck.lib.test_runner.scheduling.stop_policy import RunStopped
from holodeck.lib.user_code.raised import raised_error
from holodeck.models.agent import IN_PYTHON, Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.results.outcome import combine_outcomes
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome, TestResult
from holodeck.suite.adapters.base import AdapterBackend, Context, describe_failure
from holodeck.suite.results import AgentResult, RunResult, ScenarioRunResult, ScoreResult
from holodeck.suite.scenario import Scenario, Suite
from holodeck.suite.scorers import Scorer, get_scorer
from holodeck.suite.scorers.base import error_row

logger = logging.getLogger(__name__)

UNCHECKED = "Unchecked: the scenario has no scorers, so nothing was decided; name at least one"


@dataclass(frozen=True)
class PlannedScenario:
    """One scenario with its scorers and its time limit."""

    scenario: Scenario
    scorers: tuple[Scorer, ...]
    timeout: float


class Runner:
    """Runs suites against an agent.

    Args:
        adapter: The agent: an object with `run(input, context)`, sync or async; a function of the
            input, or an AgentBackend.
        default_timeout: Seconds that a call of the agent may take, unless suite or scenario say.
        retries: How often to call an agent again that raised an error or ran out of time, unless
            the suite says. A verdict is never retried.
        fail_fast: Whether the first failure ends the run, unless the suite says.
        strict_scorers: Whether to raise what a scorer raises instead of recording it.
        retry_delay: The longest wait before the second attempt, in seconds; then it doubles.
    """

    def __init__(
        self,
        adapter: object,
        default_timeout: float = 30.0,
        retries: int = 0,
        fail_fast: bool = False,
        *,
        strict_scorers: bool = False,
        retry_delay: float = 0.0,
    ) -> None:
        self.adapter = adapter
        self.default_timeout = default_timeout
        self.retries = retries
        self.fail_fast = fail_fast
        self.strict_scorers = strict_scorers
        self.retry_delay = retry_delay
        self._loop = BackgroundLoop()
        self._check_settings()
        AdapterBackend(adapter)

    def run_suite(
        self, suite: Suite, tags: Sequence[str] | None = None, context: Context | None = None
    ) -> RunResult:
        """Run the scenarios of a suite, or those with at least one of the tags, if there are any.

        Every attempt gets a copy of the context; values that cannot be copied are shared, with a
        warning. Raises ConfigError before the agent is called, and NothingSelected.
        """
        return self._loop.run(partial(self.arun_suite, suite, tags, context))

    def run_scenario(self, scenario: Scenario, context: Context | None = None) -> ScenarioRunResult:
        """Run a scenario. Raises ConfigError before the agent is called."""
        return self._loop.run(partial(self.arun_scenario, scenario, context))

    async def arun_suite(
        self, suite: Suite, tags: Sequence[str] | None = None, context: Context | None = None
    ) -> RunResult:
        """Do what `run_suite` does on the caller's event loop."""
        _check_ids(suite)
        return await self._run(_with_tags(suite, tags), suite, context)

    async def arun_scenario(
        self, scenario: Scenario, context: Context | None = None
    ) -> ScenarioRunResult:
        """Do what `run_scenario` does on the caller's event loop."""
        run = await self._run([scenario], Suite(name=scenario.name), context)
        return run.scenario_results[0]

    def _check_settings(self) -> None:
        """Raise ConfigError for wrong settings; they may have been assigned to."""
        timeout, retries, fail_fast = self.default_timeout, self.retries, self.fail_fast
        if type(timeout) not in (int, float) or not 0 < timeout < math.inf:
            wanted = "a number of seconds above 0"
            raise ConfigError("default_timeout", f"found {timeout!r}; expected {wanted}")
        if type(retries) is not int or retries < 0:
            raise ConfigError("retries", f"found {retries!r}; expected a whole number of 0 or more")
        if type(fail_fast) is not bool:
            raise ConfigError("fail_fast", f"found {fail_fast!r}; expected True or False")

    async def _run(
        self, scenarios: Sequence[Scenario], suite: Suite, context: Context | None
    ) -> RunResult:
        self._check_settings()
        planned = self._plan(scenarios, suite)
        agent = AdapterBackend(self.adapter, context)
        result = RunResult(suite_name=suite.name)
        fails_fast = suite.config.setting("fail_fast", self.fail_fast)
        run = _SuiteRun(planned, agent, result, fails_fast, self.strict_scorers)
        executor = TestExecutor(
            suite.name,
            agent_config=self._agent(suite, planned),
            resolved_execution_config=self._settings(),
            backend=agent,
            evaluators={
                "scorers": CustomEvaluator(
                    run.score, timeout=None, retry_config=RetryConfig(max_retries=0)
                )
            },
            on_test_start=run.start,
            options=RunOptions(is_checked=True, on_result=run.finish),
        )
        started = time.perf_counter()
        try:
            with process_exit_forbidden():
                await executor.execute_tests()
        finally:
            await executor.shutdown()
        reached = len(result.scenario_results)
        result.not_reached = [left.scenario.name for left in planned[reached:]]
        result.total_duration_ms = (time.perf_counter() - started) * 1000
        result.compute_aggregates()
        return result

    def _settings(self) -> ExecutionConfig:
        """Return the settings of a run: one scenario at a time, and limits of calls only."""
        values = {
            **DEFAULT_EXECUTION_CONFIG,
            "parallel_test_cases": 1,
            "case_timeout": None,
            "give_up": False,
            "retry_delay": self.retry_delay,
        }
        config = ExecutionConfig.model_construct(**values)
        return config.with_sources(dict.fromkeys(values, "default"))

    def _agent(self, suite: Suite, planned: Sequence[PlannedScenario]) -> Agent:
        """Return the suite as an agent with test cases, without limits that YAML has."""
        retries = suite.config.setting("retries", self.retries)
        cases = [
            TestCaseModel.model_construct(
                name=plan.scenario.name,
                input=plan.scenario.input,
                tags=plan.scenario.tags,
                ground_truth=plan.scenario.expected_output,
                timeout=plan.timeout,
                retries=retries,
            )
            for plan in planned
        ]
        agent = Agent.model_construct(name=suite.name, backend=IN_PYTHON, test_cases=cases)
        return agent.with_base_dir(suite.folder or Path.cwd())

    def _plan(self, scenarios: Sequence[Scenario], suite: Suite) -> list[PlannedScenario]:
        """Return the scenarios with their settings. Raises ConfigError for unknown scorers."""
        timeout = suite.config.setting("default_timeout", self.default_timeout)
        find_scorer = cache(partial(get_scorer, folder=suite.folder))
        planned = []
        for scenario in scenarios:
            names = scenario.setting("scorers", suite.config.default_scorers)
            limit = scenario.setting("timeout_seconds", timeout)
            planned.append(PlannedScenario(scenario, tuple(map(find_scorer, names)), limit))
        return planned


@dataclass
class _SuiteRun:
    """What an executor calls for each scenario, one after the other."""

    planned: Sequence[PlannedScenario]
    agent: AdapterBackend
    run: RunResult
    fails_fast: bool
    is_strict: bool
    strict_error: Exception | None = None
    """What a scorer raised that ends the run."""

    def start(self, _: TestCaseModel) -> None:
        """Begin the next scenario."""
        self._now = self.planned[len(self.run.scenario_results)]
        self._rows: list[ScoreResult] = []
        self._outcome = Outcome.AGENT_ERROR

    async def score(self, _: Observation) -> Score:
        """Return the verdict of all scorers; an error is a row as well."""
        scenario = self._now.scenario
        for scorer in self._now.scorers:
            try:
                self._rows.append(await _apply(scorer, scenario, self.agent.answer))
            except Exception as error:
                if self.is_strict:
                    self.strict_error = error
                    raise
                logger.debug("scorer %s: %s", scorer.name, traceback.format_exc())
                self._rows.append(error_row(scorer, scenario, error))
        verdicts = {True: Outcome.PASSED, False: Outcome.FAILED}
        self._outcome = combine_outcomes(
            [Outcome.METRIC_ERROR if row.error else verdicts[row.passed] for row in self._rows]
        )
        if self._outcome is Outcome.METRIC_ERROR:
            raise EvaluationError(self._why_undecided() or "")
        return Score(float(self._outcome.is_pass), self._outcome.is_pass)

    def finish(self, _: int, result: TestResult) -> None:
        """Add the result of the scenario; perhaps the last one.

        Raises RunStopped, and what a scorer raised if that ends the run.
        """
        if result.skipped_by is not None:
            return
        if self.strict_error is not None:
            raise self.strict_error
        answer, failure = self.agent.answer, self.agent.failure
        error = None if failure is None else describe_failure(failure)
        self.run.scenario_results.append(
            ScenarioRunResult(
                scenario=self._now.scenario,
                agent_result=answer,
                scores=self._rows,
                passed=self._outcome.is_pass,
                duration_ms=result.agent_time_ms or 0.0,
                error=error or self._why_undecided(),
                raised=None if failure is None else raised_error(failure),
                retry_count=len(result.tries),
                outcome=self._outcome,
            )
        )
        if self.fails_fast and not self._outcome.is_pass:
            why = f"{self._now.scenario.name!r} did not pass, and the suite has fail_fast"
            raise RunStopped(StopReason("fail_fast", why))

    def _why_undecided(self) -> str | None:
        """Return the error of the scenario; None if the scores decide it."""
        if self._outcome is Outcome.UNCHECKED:
            return UNCHECKED
        errors = [f"scorer {row.scorer_name!r}: {row.error}" for row in self._rows if row.error]
        return "; ".join(errors) if self._outcome is Outcome.METRIC_ERROR else None


async def _apply(scorer: Scorer, scenario: Scenario, answer: AgentResult) -> ScoreResult:
    row = await call_user_function(partial(scorer.score, scenario, answer), scorer.score)
    if inspect.isawaitable(row):
        row = await row
    if not isinstance(row, ScoreResult):
        raise EvaluationError(f"returned {row!r}; expected a ScoreResult")
    return row


def _with_tags(suite: Suite, tags: Sequence[str] | None) -> list[Scenario]:
    """Return the scenarios with one of the tags; the suite's tags are those of all."""
    if not suite.scenarios:
        raise NothingSelected(f"suite {suite.name!r} has no scenarios")
    if isinstance(tags, str):
        raise ConfigError("tags", f"found {tags!r}; expected a list: [{tags!r}]")
    if not tags:
        return suite.scenarios
    wanted = set(tags)
    selected = [case for case in suite.scenarios if wanted & {*case.tags, *suite.tags}]
    if not selected:
        known = {*suite.tags, *(tag for case in suite.scenarios for tag in case.tags)}
        raise NothingSelected(
            f"no scenario of suite {suite.name!r} has a tag of {sorted(wanted)};"
            f" its tags: {', '.join(sorted(known)) or 'none'}"
        )
    return selected


def _check_ids(suite: Suite) -> None:
    """Raise ConfigError if different scenarios have one id; the same one may be there twice."""
    by_id: dict[str, Scenario] = {}
    for scenario in suite.scenarios:
        if by_id.setdefault(scenario.id, scenario) != scenario:
            raise ConfigError(
                f"suite {suite.name!r}", f"more than one scenario has the id {scenario.id!r}"
            )
