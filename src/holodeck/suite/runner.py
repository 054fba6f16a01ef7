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
from typing import Any

from holodeck.config.defaults import DEFAULT_EXECUTION_CONFIG
from holodeck.errors import ConfigError, EvaluationError, NothingSelected
from holodeck.lib.evaluators.base import Observation, RetryConfig, Score
from holodeck.lib.evaluators.observation_metrics import CustomEvaluator
from holodeck.lib.processes.process_exit import process_exit_forbidden
from holodeck.lib.processes.threads import BackgroundLoop, call_user_function
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.options import RunOptions
from holodeck.lib.test_runner.scheduling.stop_policy import RunStopped, StopReason
from holodeck.lib.user_code.raised import raised_error
from holodeck.models.agent import IN_PYTHON, Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.results.outcome import combine_outcomes
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome, TestResult
from holodeck.suite.adapters.base import AdapterBackend, Context, describe_failure
from holodeck.suite.results import AgentResult, RunResult, ScenarioRunResult, ScoreResult
from holodeck.suite.scenario import Scenario, Suite
from holodeck.suite.scorers import QUICK, Scorer, get_scorer
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
    """Runs suites against one agent.

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
        """Run one scenario. Raises ConfigError before the agent is called."""
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
        timeout, retries = self.default_timeout, self.retries
        is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if not (is_number and math.isfinite(timeout) and timeout > 0):
            wanted = "a number of seconds above 0"
            raise ConfigError("default_timeout", f"found {timeout!r}; expected {wanted}")
        if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
            raise ConfigError("retries", f"found {retries!r}; expected a whole number of 0 or more")
        if not isinstance(self.fail_fast, bool):
            raise ConfigError("fail_fast", f"found {self.fail_fast!r}; expected True or False")

    async def _run(
        self, scenarios: Sequence[Scenario], suite: Suite, context: Context | None
    ) -> RunResult:
        self._check_settings()
        planned = self._plan(scenarios, suite)
        agent = AdapterBackend(self.adapter, context)
        result = RunResult(suite_name=suite.name)
        run = _SuiteRun(
            planned,
            agent,
            result,
            fails_fast=_own_or(suite, "fail_fast", self.fail_fast),
            is_strict=self.strict_scorers,
        )
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
        update = {
            "parallel_test_cases": 1,
            "case_timeout": None,
            "give_up": False,
            "retry_delay": self.retry_delay,
        }
        values = {**DEFAULT_EXECUTION_CONFIG, **update}
        sources = dict.fromkeys(values, "default")
        return ExecutionConfig.model_construct(**values).with_sources(sources)

    def _agent(self, suite: Suite, planned: "Sequence[PlannedScenario]") -> Agent:
        """Return the suite as an agent with test cases, without limits that YAML has."""
        retries = _own_or(suite, "retries", self.retries)
        cases = [
            TestCaseModel.model_construct(
                name=each.scenario.name,
                input=each.scenario.input,
                tags=each.scenario.tags,
                ground_truth=each.scenario.expected_output,
                timeout=each.timeout,
                retries=retries,
            )
            for each in planned
        ]
        agent = Agent.model_construct(name=suite.name, backend=IN_PYTHON, test_cases=cases)
        return agent.with_base_dir(suite.folder or Path.cwd())

    def _plan(self, scenarios: Sequence[Scenario], suite: Suite) -> list[PlannedScenario]:
        """Return the scenarios with their settings. Raises ConfigError for unknown scorers."""
        timeout = _own_or(suite, "default_timeout", self.default_timeout)
        find_scorer = cache(partial(get_scorer, folder=suite.folder))
        planned = []
        for scenario in scenarios:
            has_scorers = scenario.is_given("scorers")
            scorers = scenario.scorers if has_scorers else suite.config.default_scorers
            has_timeout = scenario.is_given("timeout_seconds")
            limit = scenario.timeout_seconds if has_timeout else timeout
            planned.append(PlannedScenario(scenario, tuple(map(find_scorer, scorers)), limit))
        return planned


class _SuiteRun:
    """What an executor calls for each scenario, one after the other."""

    def __init__(
        self,
        planned: Sequence[PlannedScenario],
        agent: AdapterBackend,
        run: RunResult,
        *,
        fails_fast: bool,
        is_strict: bool,
    ) -> None:
        self._planned = iter(planned)
        self._agent = agent
        self._run = run
        self._fails_fast = fails_fast
        self._is_strict = is_strict
        self._strict_error: Exception | None = None

    def start(self, _: TestCaseModel) -> None:
        """Begin the next scenario."""
        self._now = next(self._planned)
        self._rows: list[ScoreResult] = []
        self._outcome = Outcome.AGENT_ERROR

    async def score(self, _: Observation) -> Score:
        """Return the verdict of all scorers; one that raises has a row with its error."""
        scenario = self._now.scenario
        for scorer in self._now.scorers:
            try:
                self._rows.append(await _apply(scorer, scenario, self._agent.answer))
            except Exception as error:
                if self._is_strict:
                    self._strict_error = error
                    raise
                logger.debug("scorer %s: %s", scorer.name, traceback.format_exc())
                self._rows.append(error_row(scorer, scenario, error))
        self._outcome = combine_outcomes(list(map(_outcome_of, self._rows)))
        if self._outcome is Outcome.METRIC_ERROR:
            raise EvaluationError(_why_undecided(self._outcome, self._rows) or "")
        return Score(float(self._outcome.is_pass), self._outcome.is_pass)

    def finish(self, _: int, result: TestResult) -> None:
        """Add the result of the scenario; perhaps the last one.

        Raises RunStopped, and what a scorer raised if that ends the run.
        """
        if result.skipped_by is not None:
            return
        if self._strict_error is not None:
            raise self._strict_error
        answer, failure = self._agent.answer, self._agent.failure
        error = None if failure is None else describe_failure(failure)
        self._run.scenario_results.append(
            ScenarioRunResult(
                scenario=self._now.scenario,
                agent_result=answer,
                scores=self._rows,
                passed=self._outcome.is_pass,
                duration_ms=result.agent_time_ms or 0.0,
                error=error or _why_undecided(self._outcome, self._rows),
                raised=None if failure is None else raised_error(failure),
                retry_count=len(result.tries),
                outcome=self._outcome,
            )
        )
        if self._fails_fast and not self._outcome.is_pass:
            why = f"{self._now.scenario.name!r} did not pass, and the suite has fail_fast"
            raise RunStopped(StopReason("fail_fast", why))


def _outcome_of(row: ScoreResult) -> Outcome:
    if row.error:
        return Outcome.METRIC_ERROR
    return Outcome.PASSED if row.passed else Outcome.FAILED


def _why_undecided(outcome: Outcome, rows: Sequence[ScoreResult]) -> str | None:
    """Return the error of a scenario; None if the scores decide it."""
    if outcome is Outcome.UNCHECKED:
        return UNCHECKED
    if outcome is not Outcome.METRIC_ERROR:
        return None
    return "; ".join(f"scorer {row.scorer_name!r}: {row.error}" for row in rows if row.error)


async def _apply(scorer: Scorer, scenario: Scenario, answer: AgentResult) -> ScoreResult:
    call = partial(scorer.score, scenario, answer)
    row = call() if type(scorer) in QUICK else await call_user_function(call, scorer.score)
    if inspect.isawaitable(row):
        row = await row
    if not isinstance(row, ScoreResult):
        raise EvaluationError(f"returned {row!r}; expected a ScoreResult")
    return row


def _own_or(suite: Suite, setting: str, default: Any) -> Any:
    """Return the suite's own value of a setting, 0 and false included, else the runner's."""
    config = suite.config
    return getattr(config, setting) if config.is_given(setting) else default


def _with_tags(suite: Suite, tags: Sequence[str] | None) -> list[Scenario]:
    """Return the scenarios with one of the tags; the suite's tags are those of all."""
    if not suite.scenarios:
        raise NothingSelected(f"suite {suite.name!r} has no scenarios")
    if isinstance(tags, str):
        raise ConfigError("tags", f"found {tags!r}; expected a list: [{tags!r}]")
    if not tags:
        return suite.scenarios
    wanted = set(tags)
    found = [one for one in suite.scenarios if wanted & {*one.tags, *suite.tags}]
    if not found:
        known = sorted(
            {tag for scenario in suite.scenarios for tag in scenario.tags} | set(suite.tags)
        )
        raise NothingSelected(
            f"no scenario of suite {suite.name!r} has a tag of {sorted(wanted)};"
            f" its tags: {', '.join(known) or 'none'}"
        )
    return found


def _check_ids(suite: Suite) -> None:
    """Raise ConfigError if different scenarios have one id; the same one may be there twice."""
    seen: dict[str, Scenario] = {}
    for scenario in suite.scenarios:
        if seen.setdefault(scenario.id, scenario) != scenario:
            raise ConfigError(
                f"suite {suite.name!r}", f"more than one scenario has the id {scenario.id!r}"
            )
