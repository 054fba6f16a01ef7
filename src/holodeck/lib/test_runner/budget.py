"""How much a run may spend, and how much of it is left."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from holodeck.lib.test_runner.costs import calls_of, money, tokens_of
from holodeck.lib.text import plural
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_result import TestResult


@dataclass
class _BudgetLimit:
    """One limit, and what has been spent of it."""

    limit: float
    words: Callable[[float], str]
    measure: Callable[[TestResult], float | None]
    """What a case has spent; None where that is not known."""
    spent: float = 0.0
    is_known: bool = True

    def pay(self, result: TestResult) -> None:
        amount = self.measure(result)
        self.is_known = self.is_known and amount is not None
        self.spent += amount or 0.0

    def why_empty(self) -> str | None:
        """Why no further case may start; None if one may."""
        if not self.is_known:
            return f"{self._name} cannot be held, as not every answer tells what it has spent"
        if self.spent < self.limit:
            return None
        return f"{self._name} is used up ({self.words(self.spent)} spent)"

    @property
    def _name(self) -> str:
        return f"the budget of {self.words(self.limit)}"


class Budget:
    """Lets cases start as long as the run may spend more; what has started always finishes.

    The first case starts alone, and towards the end only as many run at once as are likely to fit,
    so a run spends about one case more than it may, not as many as run at a time.

    Args:
        config: The limits.
        currency: Of the costs.
        clock: Seconds, for tests.
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
        """Why a case was not let start; None while all were."""

    async def admits(self) -> bool:
        """Wait until a case may start; False if none may any more, and `refused` says why."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._why_empty() or self._has_room())
            self.refused = self.refused or self._why_empty()
            self._running += self.refused is None
            return self.refused is None

    async def pay(self, result: TestResult) -> None:
        """Count what a case that was admitted has spent."""
        async with self._changed:
            self._running -= 1
            self._paid += 1
            for limit in self._limits:
                limit.pay(result)
            self._changed.notify_all()

    def _why_empty(self) -> str | None:
        if self._max_time is not None and self._clock() - self._started >= self._max_time:
            return f"the budget of {self._max_time:g} s is used up"
        return next((why for one in self._limits if (why := one.why_empty())), None)

    def _has_room(self) -> bool:
        if not self._running:
            return True
        if not self._paid:
            return not self._limits
        after = self._running + 1
        return all(one.spent * (1 + after / self._paid) <= one.limit for one in self._limits)


def _budget_limits(config: ExecutionConfig, currency: str) -> Iterator[_BudgetLimit]:
    if config.max_cost is not None:
        yield _BudgetLimit(config.max_cost, lambda amount: money(amount, currency), _cost_of)
    if config.max_tokens is not None:
        yield _BudgetLimit(
            config.max_tokens, partial(plural, thing="token", form=",.0f"), tokens_of
        )
    if config.max_calls is not None:
        yield _BudgetLimit(config.max_calls, partial(plural, thing="call", form=",.0f"), calls_of)


def _cost_of(result: TestResult) -> float | None:
    return result.cost.total if result.cost is not None else None
