"""Limits that end a run early: failures, refusals, budgets."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from holodeck.errors import Refusal
from holodeck.lib.reports.costs import amount_of, calls_of, known_tokens, money, tokens_of
from holodeck.lib.support.text import plural
from holodeck.lib.test_runner.run_state import StopReason
from holodeck.models.agent import Agent
from holodeck.models.backend import A2aBackendConfig, HttpBackendConfig
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import PROVIDERS
from holodeck.models.results.outcome import ModelCost
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome, TestResult
from holodeck.models.token_usage import PriceTable

MAX_REFUSALS = 3
"""The run stops after this many calls in a row that a provider refuses permanently."""

_UNTIL_ANSWERED: frozenset[Refusal | None] = frozenset({"model", "request", "unreachable"})
"""Refusals that say nothing about other cases once the agent has answered any."""
_REFUSES_EVERY_CASE: frozenset[Refusal | None] = frozenset({"key", "quota", "model"})
_CHECKS: dict[Refusal, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "key": ("check", ("model", "api_key"), ("backend", "headers")),
    "quota": ("check the account of", ("model", "api_key"), ("backend", "headers")),
    "model": ("check", ("model", "name"), ("backend", "url")),
    "request": ("check", ("model",), ("backend",)),
    "unreachable": (
        "check that the server is running, and",
        ("model", "endpoint"),
        ("backend", "url"),
    ),
}
"""Refusal → what to check: what the message begins with, and where that is for an agent with a
model, and for one that is a URL."""
_CODE_HINTS: dict[Refusal, str] = {
    "key": "check the API key that the agent's code uses",
    "quota": "check the account of the API key that the agent's code uses",
    "unreachable": "check that the server which the agent's code calls is running",
}


class RunStopped(Exception):
    """Raised to stop a run at once, cases that are running included."""

    def __init__(self, stop: StopReason) -> None:
        super().__init__(stop.reason)
        self.stop = stop


class StopPolicy:
    """Watches the results of a run for reasons to stop it.

    Args:
        settings: The limits of the run.
        agent: The agent, whose configuration messages refer to.
        has_answers: Whether the agent has answered a case in an earlier part of the run.
    """

    def __init__(
        self, settings: ExecutionConfig, agent: Agent, *, has_answers: bool = False
    ) -> None:
        self._agent = agent
        self._has_answers = has_answers
        self._reasons: set[str] = set()
        self._max_failures = failure_limit(settings)
        self._fails_fast = settings.fail_fast is True
        self._gives_up = settings.give_up is not False
        self._failures = 0
        self._stop: StopReason | None = None
        """Why no further case of the run starts; None if one does."""
        self._stopped: dict[str | None, StopReason] = {}
        """Why no further case of a suite starts, by its name; None for cases without one."""
        self._refusals = 0

    def reason_to_stop(self, case: TestCaseModel) -> StopReason | None:
        """Return why no further case of the case's suite starts; None if it does."""
        return self._stopped.get(case.suite)

    def count_failure(self, case: TestCaseModel, result: TestResult) -> None:
        """Count the result if it did not pass. Raises RunStopped if there are too many by now."""
        is_exempt = self._fails_fast and case.fail_fast is False
        self._failures += not (result.passed or is_exempt)
        if self._stop is None and self._failures == self._max_failures:
            why = f"{_quoted_name(result)} did not pass (fail_fast)"
            if self._failures > 1:
                why = f"{self._failures} cases did not pass (maxfail)"
            self._stop = StopReason("fail_fast", why)
        if self._stop is not None:  # also for a case that ended at the same time
            raise RunStopped(self._stop)
        if case.fail_fast and not result.passed:
            owner = f"suite {case.suite!r} has" if case.suite else "the cases without a suite have"
            why = f"{_quoted_name(result)} did not pass, and {owner} fail_fast"
            self._stopped.setdefault(case.suite, StopReason("fail_fast", why))

    def with_hint(self, result: TestResult, refusal: Refusal | None) -> TestResult:
        """Return the result; in a run of too few cases to give up, its error says what to check."""
        hint = hint_for_refusal(self._agent, refusal) if refusal in _REFUSES_EVERY_CASE else ""
        if not hint or not result.errors or len(self._agent.test_cases or ()) >= MAX_REFUSALS:
            return result
        first, *others = result.errors
        return result.model_copy(update={"errors": [f"{first}; {hint}", *others]})

    def count_refusal(
        self, result: TestResult, refusal: Refusal | None, *, is_permanent: bool
    ) -> None:
        """Count permanent refusals in a row. Raises RunStopped if there are too many.

        `is_permanent` says that every other case will fail like it, `refusal` what the
        provider objected to.

        A refused model or request counts only while every case so far was refused for the same
        reason; otherwise it is about the content of a case. So does what is not permanent, such as
        what the user's own code was refused.
        """
        self._has_answers |= result.outcome is not Outcome.AGENT_ERROR
        if len(self._reasons) < 2:
            text = result.errors[0] if result.errors else ""
            self._reasons.add(text if refusal in {None, "request"} else refusal)
        is_alike = len(self._reasons) == 1 and refusal is not None
        is_general = is_permanent and refusal not in {"model", "request"}
        is_counted = self._gives_up and (is_general or is_alike)
        if not is_counted or (self._has_answers and refusal in _UNTIL_ANSWERED):
            self._refusals = 0
            return
        tries = sum(len(run.attempts) for run in result.single_runs)
        is_unreachable = refusal == "unreachable" and is_permanent
        self._refusals += max(1, tries) if is_unreachable else 1
        if self._refusals >= MAX_REFUSALS:
            reason = result.errors[0]
            if not is_unreachable or tries < MAX_REFUSALS:
                reason += f"; {MAX_REFUSALS} calls in a row were refused"
            hint = hint_for_refusal(self._agent, refusal)
            raise RunStopped(StopReason("refused", f"{reason}; {hint}" if hint else reason))


def hint_for_refusal(agent: Agent, refusal: Refusal | None) -> str:
    """Return what to check after a refusal, with its location; "" if nothing is known."""
    if refusal is None:
        return ""
    begin, model_path, url_path = _CHECKS[refusal]
    if isinstance(agent.backend, HttpBackendConfig | A2aBackendConfig):
        path = url_path
    elif agent.has_own_model:
        return _CODE_HINTS.get(refusal, "")
    elif agent.model is not None:
        path = model_path
    else:
        return ""
    hint = f"{begin} {_path_with_location(agent, *path)}"
    if path == ("model", "api_key") and agent.model is not None:
        variables = PROVIDERS[agent.model.provider].api_key
        return f"{hint} or {variables[0]}" if variables else hint
    if path == ("model", "name") and agent.model is not None and agent.model.endpoint:
        return f"{hint} and {_path_with_location(agent, 'model', 'endpoint')}"
    return hint


def _path_with_location(agent: Agent, *path: str) -> str:
    """Return a path with its location, such as `model.name (agent.yaml:4:9)`."""
    location = agent.location(*path)
    return ".".join(path) if location == "agent" else f"{'.'.join(path)} ({location})"


def _quoted_name(result: TestResult) -> str:
    return repr(result.written_name or result.test_input)


def failure_limit(settings: ExecutionConfig) -> int | None:
    """Return how many cases that do not pass stop the run; None for no limit."""
    return 1 if settings.fail_fast else settings.maxfail


_Measure = Callable[[TestResult], float | None]
_MeasureCost = Callable[[ModelCost, PriceTable], float | None]


@dataclass
class _BudgetLimit:
    """One limit, and what has been spent of it."""

    limit: float
    format: Callable[[float], str]
    measure: _Measure
    """Returns what a case has spent; None if that is unknown."""
    measure_cost: _MeasureCost
    """Returns what calls of a model have spent; None if that is unknown."""
    before: float = 0.0
    """What was spent before the first case."""
    spent: float = 0.0
    """What cases have spent."""
    is_known: bool = True

    def add_cost(self, cost: ModelCost, prices: PriceTable) -> None:
        self.before += self._known(self.measure_cost(cost, prices))

    def add_result(self, result: TestResult) -> None:
        self.spent += self._known(self.measure(result))

    def _known(self, amount: float | None) -> float:
        self.is_known = self.is_known and amount is not None
        return amount or 0.0

    def reason_used_up(self) -> str | None:
        """Return why no further case may start; None if it may."""
        if not self.is_known:
            return f"{self._name} cannot be enforced, because not every response reports its usage"
        spent = self.before + self.spent
        if spent < self.limit:
            return None
        return f"{self._name} is used up ({self.format(spent)} spent)"

    @property
    def _name(self) -> str:
        return f"the budget of {self.format(self.limit)}"


class Budget:
    """Lets cases start while the run may spend more; a case that has started always finishes.

    The first case starts alone, and near the limit only as many run concurrently as are likely to
    fit, so that a run exceeds its limit by about one case.

    Args:
        config: The limits.
        currency: The currency of costs.
        clock: Returns seconds; for tests.
    """

    def __init__(
        self,
        config: ExecutionConfig,
        currency: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = list(_budget_limits(config, currency))
        self._max_time = config.max_time
        self._clock = clock
        self._started = clock()
        self._running = 0
        self._paid = 0
        self._changed = asyncio.Condition()
        self.refused: str | None = None
        """Why a case was not allowed to start; None if all were."""

    def spend_before(self, costs: Iterable[ModelCost], prices: PriceTable | None) -> None:
        """Count what models cost that were asked before the first case."""
        for cost in costs:
            for limit in self._limits:
                limit.add_cost(cost, prices or PriceTable())

    async def admit(self) -> bool:
        """Wait until a case may start; False if none may anymore, and `refused` says why."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._reason_used_up() or self._has_room())
            self.refused = self.refused or self._reason_used_up()
            self._running += self.refused is None
            return self.refused is None

    async def add_result(self, result: TestResult) -> None:
        """Count what an admitted case has spent."""
        async with self._changed:
            self._running -= 1
            self._paid += 1
            for limit in () if _is_replayed(result) else self._limits:
                limit.add_result(result)
            self._changed.notify_all()

    def _reason_used_up(self) -> str | None:
        if self._max_time is not None and self._clock() - self._started >= self._max_time:
            return f"the budget of {self._max_time:g} s is used up"
        return next((why for limit in self._limits if (why := limit.reason_used_up())), None)

    def _has_room(self) -> bool:
        if not self._running:
            return True
        if not self._paid:
            return not self._limits
        after = self._running + 1
        return all(
            limit.before + limit.spent * (1 + after / self._paid) <= limit.limit
            for limit in self._limits
        )


def _is_replayed(result: TestResult) -> bool:
    """Whether all responses came from recordings, so that the case has spent nothing."""
    uses = [run.recording for run in result.single_runs]
    return all(use is not None and use.replayed and not use.live for use in uses)


def _budget_limits(config: ExecutionConfig, currency: str) -> Iterator[_BudgetLimit]:
    if config.max_cost is not None:
        shown = partial(money, currency=currency)
        yield _BudgetLimit(
            config.max_cost,
            shown,
            lambda result: None if result.cost is None else result.cost.total,
            amount_of,
        )
    limits: tuple[tuple[int | None, str, _Measure, _MeasureCost], ...] = (
        (config.max_tokens, "token", tokens_of, lambda cost, _: known_tokens(cost)),
        (config.max_calls, "call", calls_of, lambda cost, _: cost.calls),
    )
    for limit, thing, measure, measure_cost in limits:
        if limit is not None:
            shown = partial(plural, thing=thing, form=",.0f")
            yield _BudgetLimit(limit, shown, measure, measure_cost)
