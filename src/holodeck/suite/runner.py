"""Runs suites: calls the agent, retries after errors, and applies the scorers."""

import inspect
import logging
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from holodeck.errors import BackendError, ConfigError, EvaluationError, NothingSelected
from holodeck.lib.llm.retry import RetryConfig, backoff_delay, retry
from holodeck.lib.observability import names, set_content, span
from holodeck.lib.processes.background_loop import BackgroundLoop
from holodeck.lib.processes.process_exit import process_exit_forbidden
from holodeck.lib.processes.threads import call_user_function
from holodeck.lib.support.text import describe
from holodeck.lib.user_code.raised import raised_error
from holodeck.models.results.outcome import Outcome, combine_outcomes
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
        self._backoff = RetryConfig(base_delay=retry_delay)
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
        config = suite.config
        retries = config.retries if config.is_given("retries") else self.retries
        fail_fast = config.fail_fast if config.is_given("fail_fast") else self.fail_fast
        planned = self._plan(scenarios, suite)
        agent = AgentCaller(self.adapter)
        agent.check_context(context)
        shared = _uncopyable(context)
        context = _copy_of(context, shared)
        run = RunResult(suite_name=suite.name)
        started = time.perf_counter()
        try:
            with process_exit_forbidden():
                for one in planned:
                    copy = partial(_copy_of, context, shared)
                    result = await self._run_scenario(agent, one, retries, copy)
                    run.scenario_results.append(result)
                    if fail_fast and not result.passed:
                        break
        finally:
            await agent.close()
        run.not_reached = [one.scenario.name for one in planned[len(run.scenario_results) :]]
        run.total_duration_ms = _ms_since(started)
        run.compute_aggregates()
        return run

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

    async def _run_scenario(
        self,
        agent: AgentCaller,
        planned: PlannedScenario,
        retries: int,
        context: Callable[[], Context | None],
    ) -> ScenarioRunResult:
        with span(names.CASE, {names.CASE_NAME: planned.scenario.name}) as current:
            call = _AgentCall(agent, planned, context)
            verdict: dict[str, Any]
            try:
                answer = await retry(
                    call.attempt,
                    attempts=retries + 1,
                    is_transient=lambda error: (
                        isinstance(error, BackendError) and not error.permanent
                    ),
                    delay_for=lambda _, attempt: backoff_delay(attempt, self._backoff),
                )
            except BackendError as error:
                answer = AgentResult(output="")
                verdict = {"error": describe_failure(error), "raised": raised_error(error)}
                verdict["outcome"] = Outcome.AGENT_ERROR
            else:
                rows = await self._score(planned, answer)
                outcome = combine_outcomes([_outcome_of(row) for row in rows])
                verdict = {"scores": rows, "outcome": outcome, "passed": outcome.is_pass}
                verdict["error"] = _why_undecided(outcome, rows)
            result = ScenarioRunResult(
                scenario=planned.scenario,
                agent_result=answer,
                duration_ms=call.last_ms,
                retry_count=call.attempts - 1,
                **verdict,
            )
            current.set(
                {
                    names.CASE_STATUS: "pass" if result.passed else "fail",
                    names.CASE_OUTCOME: result.outcome.value,
                }
            )
        return result

    async def _score(self, planned: PlannedScenario, answer: AgentResult) -> list[ScoreResult]:
        """Return a row for each scorer; one that raises gets a row with its error."""
        rows: list[ScoreResult] = []
        for scorer in planned.scorers:
            try:
                rows.append(await _apply(scorer, planned.scenario, answer))
            except Exception as error:
                if self.strict_scorers:
                    raise
                logger.debug("scorer %s: %s", scorer.name, traceback.format_exc())
                rows.append(error_row(scorer, planned.scenario, error))
        return rows


class _AgentCall:
    """The attempts to get an answer for one scenario."""

    def __init__(
        self,
        agent: AgentCaller,
        planned: PlannedScenario,
        context: Callable[[], Context | None],
    ) -> None:
        self.attempts = 0
        self.last_ms = 0.0
        self._agent = agent
        self._planned = planned
        self._context = context

    async def attempt(self) -> AgentResult:
        """Call the agent with its own copy of the context. Raises BackendError."""
        self.attempts += 1
        message, limit_s = self._planned.scenario.input, self._planned.timeout
        started = time.perf_counter()
        operation = {names.OPERATION: names.INVOKE_AGENT}
        with span(names.INVOKE_AGENT, operation, kind="client") as current:
            set_content(current, names.INPUT_MESSAGES, names.message("user", message))
            try:
                answer = await self._agent.answer(message, self._context(), limit_s)
            except BackendError as error:
                current.fail(type(error).__name__, str(error))
                raise
            finally:
                self.last_ms = _ms_since(started)
            set_content(current, names.OUTPUT_MESSAGES, names.message("assistant", answer.output))
        return answer


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


def _ms_since(started: float) -> float:
    """Return milliseconds since a moment of `time.perf_counter`."""
    return (time.perf_counter() - started) * 1000
