"""Runs suites: calls the agent, retries after errors, and applies the scorers."""

import inspect
import logging
import math
import time
import traceback
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from holodeck.config.defaults import DEFAULT_EXECUTION_CONFIG
from holodeck.errors import (
    BackendError,
    BackendSessionError,
    ConfigError,
    EvaluationError,
    NothingSelected,
)
from holodeck.lib.backends.base import AgentSession, ExecutionResult, Message
from holodeck.lib.evaluators.base import Observation, RetryConfig, Score
from holodeck.lib.evaluators.observation_metrics import CustomEvaluator
from holodeck.lib.processes.background_loop import BackgroundLoop
from holodeck.lib.processes.process_exit import process_exit_forbidden
from holodeck.lib.processes.threads import call_user_function
from holodeck.lib.support.exceptions import describe
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.options import RunOptions
from holodeck.lib.user_code.raised import raised_error
from holodeck.models.agent import IN_PYTHON, Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.results.outcome import combine_outcomes
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome, TestResult
from holodeck.suite.adapters.base import AgentCaller, Context, describe_failure
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
        AgentCaller(adapter)

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
        agent = AgentCaller(self.adapter)
        agent.check_context(context)
        result = RunResult(suite_name=suite.name)
        run = _SuiteRun(planned, agent, context, result, is_strict=self.strict_scorers)
        executor = TestExecutor(
            suite.name,
            agent_config=self._agent(suite, planned),
            resolved_execution_config=self._settings(suite),
            backend=run,
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
            await agent.close()
        reached = len(result.scenario_results)
        result.not_reached = [one.scenario.name for one in planned[reached:]]
        result.total_duration_ms = (time.perf_counter() - started) * 1000
        result.compute_aggregates()
        return result

    def _settings(self, suite: Suite) -> ExecutionConfig:
        """Return the settings of a run: one scenario at a time, and limits of calls only."""
        config = suite.config
        fail_fast = config.fail_fast if config.is_given("fail_fast") else self.fail_fast
        update = {
            "parallel_test_cases": 1,
            "case_timeout": None,
            "give_up": False,
            "fail_fast": fail_fast,
            "retry_delay": self.retry_delay,
        }
        values = {**DEFAULT_EXECUTION_CONFIG, **update}
        return ExecutionConfig.model_construct(**values).with_sources(
            dict.fromkeys(values, "default")
        )

    def _agent(self, suite: Suite, planned: "Sequence[PlannedScenario]") -> Agent:
        """Return the suite as an agent with test cases, without limits that YAML has."""
        config = suite.config
        retries = config.retries if config.is_given("retries") else self.retries
        cases = [
            TestCaseModel.model_construct(
                name=one.scenario.name,
                input=one.scenario.input,
                tags=one.scenario.tags,
                ground_truth=one.scenario.expected_output,
                timeout=one.timeout,
                retries=retries,
            )
            for one in planned
        ]
        agent = Agent.model_construct(name=suite.name, backend=IN_PYTHON, test_cases=cases)
        return agent.with_base_dir(suite.folder or Path.cwd())

    def _plan(self, scenarios: Sequence[Scenario], suite: Suite) -> list[PlannedScenario]:
        """Return the scenarios with their settings. Raises ConfigError for unknown scorers."""
        config = suite.config
        timeout = self.default_timeout
        if config.is_given("default_timeout"):
            timeout = config.default_timeout
        find_scorer = cache(partial(get_scorer, folder=suite.folder))
        planned = []
        for one in scenarios:
            scorers = one.scorers if one.is_given("scorers") else config.default_scorers
            own_timeout = one.timeout_seconds if one.is_given("timeout_seconds") else timeout
            planned.append(PlannedScenario(one, tuple(map(find_scorer, scorers)), own_timeout))
        return planned


class _SuiteRun:
    """The agent and the scorers of a suite as an executor calls them, one scenario at a time."""

    def __init__(
        self,
        planned: Sequence[PlannedScenario],
        agent: AgentCaller,
        context: Context | None,
        run: RunResult,
        *,
        is_strict: bool,
    ) -> None:
        self._planned = iter(planned)
        self._agent = agent
        self._shared = _uncopyable(context)
        self._context = _copy_of(context, self._shared)
        self._run = run
        self._is_strict = is_strict
        self._strict_error: Exception | None = None

    def start(self, _: TestCaseModel) -> None:
        """Begin the next scenario."""
        self._now = next(self._planned)
        self._rows: list[ScoreResult] = []
        self._outcome = Outcome.AGENT_ERROR

    async def initialize(self) -> None:
        """Do nothing: the first call opens the agent."""

    async def invoke_once(
        self,
        message: str,
        context: Sequence[Message] | None = None,  # noqa: ARG002 - scenarios have no history
    ) -> ExecutionResult:
        """Return the agent's answer to its own copy of the context. Raises BackendError."""
        self._answer, self._error = AgentResult(output=""), None
        context_copy = _copy_of(self._context, self._shared)
        try:
            self._answer = await self._agent.answer(message, context_copy)
        except BackendError as error:
            self._error = error
            raise
        return ExecutionResult(response=self._answer.output)

    async def create_session(self, context: Sequence[Message] | None = None) -> AgentSession:  # noqa: ARG002
        raise BackendSessionError("a scenario has no conversation")

    async def teardown(self) -> None:
        """Do nothing: the runner closes the agent."""

    async def score(self, _: Observation) -> Score:
        """Return the verdict of all scorers; one that raises has a row with its error."""
        scenario = self._now.scenario
        for scorer in self._now.scorers:
            try:
                self._rows.append(await _apply(scorer, scenario, self._answer))
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
        """Add the result of the scenario. Raises what a scorer raised if it is strict."""
        if result.skipped_by is not None:
            return
        if self._strict_error is not None:
            raise self._strict_error
        error = None if self._error is None else describe_failure(self._error)
        self._run.scenario_results.append(
            ScenarioRunResult(
                scenario=self._now.scenario,
                agent_result=self._answer,
                scores=self._rows,
                passed=self._outcome.is_pass,
                duration_ms=result.agent_time_ms or 0.0,
                error=error or _why_undecided(self._outcome, self._rows),
                raised=None if self._error is None else raised_error(self._error),
                retry_count=len(result.tries),
                outcome=self._outcome,
            )
        )


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
        known = sorted({tag for one in suite.scenarios for tag in one.tags} | set(suite.tags))
        raise NothingSelected(
            f"no scenario of suite {suite.name!r} has a tag of {sorted(wanted)};"
            f" its tags: {', '.join(known) or 'none'}"
        )
    return found


def _check_ids(suite: Suite) -> None:
    """Raise ConfigError if different scenarios have one id; the same one may be there twice."""
    seen: dict[str, Scenario] = {}
    for one in suite.scenarios:
        if seen.setdefault(one.id, one) != one:
            raise ConfigError(
                f"suite {suite.name!r}", f"more than one scenario has the id {one.id!r}"
            )


def _uncopyable(context: Context | None) -> dict[int, Any]:
    """Return the values that cannot be copied, by `id()`; a warning says that they are shared."""
    shared = {}
    for key, value in (context or {}).items():
        try:
            deepcopy(value)
        except Exception as error:  # noqa: BLE001 - the user's object may raise anything
            shared[id(value)] = value
            logger.warning(
                "context[%r] cannot be copied (%s), so all scenarios share it; if one changes it,"
                " the next one sees that. Give its class a __deepcopy__, or make it in the adapter",
                key,
                describe(error),
            )
    return shared


def _copy_of(context: Context | None, shared: Mapping[int, Any]) -> Context | None:
    """Return a copy, so that no attempt changes what the next one gets."""
    return deepcopy(context, dict(shared))
