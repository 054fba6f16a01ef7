"""Runs scenarios: asks the agent, lets the scorers judge, tries again after errors."""

import time
from collections.abc import Sequence
from copy import deepcopy
from functools import partial

from holodeck.errors import BackendError, ConfigError
from holodeck.lib.background_loop import BackgroundLoop
from holodeck.lib.exceptions import raised_by
from holodeck.lib.llm.retry import RetryConfig, backoff_delay, retry
from holodeck.lib.observability import names, span
from holodeck.lib.process_exit import process_exit_forbidden
from holodeck.models.test_result import Outcome
from holodeck.suite.adapters import Agent, Context, in_words
from holodeck.suite.attempts import Attempts, ms_since
from holodeck.suite.plan import Defaults, Plan, Planned, plan_scenario, plan_suite
from holodeck.suite.results import AgentResult, RunResult, ScenarioRunResult
from holodeck.suite.scenario import Scenario, Suite
from holodeck.suite.scoring import score, verdict


class Runner:
    """Runs suites against one agent.

    Args:
        adapter: The agent: an object with `run(input, context)`, sync or async; a function of the
            input, or an AgentBackend.
        default_timeout: Seconds that a call of the agent may take, unless suite or scenario say.
        retries: How often an agent that raised or ran out of time is asked again, unless the suite
            says. Verdicts are never asked for again.
        fail_fast: Whether the first failure ends the run, unless the suite says.
        strict_scorers: Whether what a scorer raises is raised, instead of made a row.
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
        self._waits = RetryConfig(base_delay=retry_delay)
        self._loop = BackgroundLoop()
        self._defaults()
        Agent(adapter)

    def run_suite(
        self, suite: Suite, tags: Sequence[str] | None = None, context: Context | None = None
    ) -> RunResult:
        """The results of a suite's scenarios, or of those with at least one of the tags.

        Every attempt gets a copy of the context. Raises ConfigError before the agent is called, and
        NothingSelected.
        """
        return self._loop.run(partial(self.arun_suite, suite, tags, context))

    def run_scenario(self, scenario: Scenario, context: Context | None = None) -> ScenarioRunResult:
        """The result of one scenario. Raises ConfigError before the agent is called."""
        return self._loop.run(partial(self.arun_scenario, scenario, context))

    async def arun_suite(
        self, suite: Suite, tags: Sequence[str] | None = None, context: Context | None = None
    ) -> RunResult:
        """`run_suite` on the caller's event loop."""
        return await self._run(plan_suite(suite, tags, self._defaults()), suite.name, context)

    async def arun_scenario(
        self, scenario: Scenario, context: Context | None = None
    ) -> ScenarioRunResult:
        """`run_scenario` on the caller's event loop."""
        run = await self._run(plan_scenario(scenario, self._defaults()), scenario.name, context)
        return run.scenario_results[0]

    def _defaults(self) -> Defaults:
        """The settings as they are now; they may have been assigned to. Raises ConfigError."""
        return Defaults(self.default_timeout, self.retries, self.fail_fast)

    async def _run(self, plan: Plan, name: str, context: Context | None) -> RunResult:
        agent = Agent(self.adapter)
        agent.check_context(context)
        context = _copied(context)
        run = RunResult(suite_name=name)
        started = time.perf_counter()
        try:
            with process_exit_forbidden():
                for planned in plan.scenarios:
                    result = await self._run_one(agent, planned, plan.retries, context)
                    run.scenario_results.append(result)
                    if plan.fail_fast and not result.passed:
                        break
        finally:
            await agent.close()
        left = plan.scenarios[len(run.scenario_results) :]
        run.not_reached = [planned.scenario.name for planned in left]
        run.total_duration_ms = ms_since(started)
        run.compute_aggregates()
        return run

    async def _run_one(
        self, agent: Agent, planned: Planned, retries: int, context: Context | None
    ) -> ScenarioRunResult:
        with span(names.CASE, {names.CASE_NAME: planned.scenario.name}) as current:
            result = await self._result(Attempts(agent, planned, context), retries)
            current.set({names.CASE_STATUS: "pass" if result.passed else "fail"})
        return result

    async def _result(self, tried: Attempts, retries: int) -> ScenarioRunResult:
        try:
            answer = await retry(
                tried.answer,
                attempts=retries + 1,
                is_transient=_may_pass,
                delay_for=lambda _, attempt: backoff_delay(attempt, self._waits),
            )
        except BackendError as error:
            return tried.result(
                AgentResult(output=""),
                error=in_words(error),
                raised=raised_by(error),
                outcome=Outcome.AGENT_ERROR,
            )
        rows = await score(tried.planned, answer, is_strict=self.strict_scorers)
        outcome, why = verdict(rows)
        return tried.result(
            answer, scores=rows, error=why, outcome=outcome, passed=outcome is Outcome.PASSED
        )


def _may_pass(error: Exception) -> bool:
    return isinstance(error, BackendError) and not error.permanent


def _copied(context: Context | None) -> Context | None:
    """The context as it is now, so that nobody changes what the next scenario gets."""
    for key, value in (context or {}).items():
        try:
            deepcopy(value)
        except Exception as error:
            raise ConfigError(
                f"context[{key!r}]",
                f"cannot be copied for each scenario ({type(error).__name__}: {error});"
                " make it in the adapter, or give its class a __deepcopy__",
            ) from error
    return deepcopy(context)
