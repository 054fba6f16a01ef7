"""Trying again: how often, after how long, and what a server says about it."""

import asyncio
import logging
import math
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")

logger = logging.getLogger(__name__)

FIRST_TRIES = 3
"""Tries to connect to a server that has not answered anything yet."""
FIRST_DELAY_S = 1.0
"""The longest wait between these."""


@dataclass(frozen=True)
class Wait:
    """The wait before a request is sent again."""

    reason: str
    """Why the last try failed."""
    retry: int
    """Which retry comes next, from 1."""
    most: int
    """How many there are at most."""
    seconds: float

    @property
    def next_try(self) -> str:
        """Such as `retry 3 of 5 in 4.0 s`."""
        return f"retry {self.retry} of {self.most} in {self.seconds:.1f} s"


on_wait: ContextVar[Callable[[Wait], None] | None] = ContextVar("holodeck_on_wait", default=None)
"""Called whenever a request waits for its next try, so that somebody can see it."""


class RetryConfig(BaseModel):
    """How often a call is tried and how long is waited in between."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    max_retries: Annotated[int, Field(ge=0)] = 3
    """How often a call is tried again after the first try; 0 means never."""
    base_delay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0
    """Longest wait after the first try, in seconds."""
    max_delay: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    """Longest wait after any try, in seconds."""
    exponential_base: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 2.0
    """How much longer the longest wait gets with each try."""
    every_error: bool = False
    """Whether any error is tried again, not only those that tend to pass by themselves."""


def backoff_delay(
    attempt: int, config: RetryConfig, rng: Callable[[], float] = random.random
) -> float:
    """Seconds to wait after try number `attempt` (from 1): full jitter, 0 up to the longest wait.

    `rng` gives numbers from 0 to 1.
    """
    try:
        longest = config.base_delay * config.exponential_base ** (attempt - 1)
    except OverflowError:
        longest = config.max_delay
    return rng() * min(longest, config.max_delay)


def first_delay(attempt: int, config: RetryConfig) -> float:
    """Seconds until a server that has not answered yet is tried again; nothing left to chance."""
    return min(FIRST_DELAY_S, backoff_delay(attempt, config, rng=lambda: 1.0))


async def retry(  # noqa: PLR0913 - each decision belongs to somebody else
    call: Callable[[], Awaitable[T]],
    *,
    attempts: int,
    is_transient: Callable[[Exception], bool],
    delay_for: Callable[[Exception, int], float],
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    on_retry: Callable[[Exception, int, float], None] | None = None,
    is_down: Callable[[Exception], bool] | None = None,
    describe: Callable[[Exception], str] | None = None,
) -> T:
    """What `call` gives, tried up to `attempts` times in all.

    An error that is not transient, and the error of the last try, are raised as they are.
    `delay_for(error, attempt)` is the wait in seconds after try number `attempt` (from 1); it may
    raise to end the tries. `on_retry(error, attempt, delay)` is told before each wait.
    `is_down(error)` says that the server never answered: then there are fewer tries. With
    `describe` each wait is logged and passed to `on_wait`.
    Cancellation passes through at once.
    """
    if attempts < 1:
        raise ValueError(f"attempts is {attempts}; at least 1 is needed")
    attempt = 0
    while True:
        attempt += 1
        try:
            return await call()
        except Exception as error:
            gives_up_early = is_down is not None and is_down(error)
            allowed = min(attempts, FIRST_TRIES) if gives_up_early else attempts
            if attempt >= allowed or not is_transient(error):
                raise
            delay = delay_for(error, attempt)
            if on_retry is not None:
                on_retry(error, attempt, delay)
            if describe is not None:
                _tell(Wait(describe(error), attempt, allowed - 1, delay))
        await sleep(delay)


def _tell(wait: Wait) -> None:
    logger.info("%s, %s", wait.reason, wait.next_try)
    listener = on_wait.get()
    if listener is not None:
        listener(wait)


def _now() -> datetime:
    return datetime.now(UTC)


def parse_retry_after(
    headers: Mapping[str, str], now: Callable[[], datetime] = _now
) -> float | None:
    """Seconds that a response asks to wait; None if it does not say so in a usable way.

    `retry-after-ms` is read before `Retry-After`, which holds seconds or an HTTP date. Negative
    numbers, dates in the past and anything unreadable count as nothing said.
    """
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    milliseconds = _number(lower.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    seconds = _number(lower.get("retry-after"))
    if seconds is not None:
        return seconds
    return _seconds_until(lower.get("retry-after"), now)


def _number(text: str | None) -> float | None:
    if text is None or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _seconds_until(text: str | None, now: Callable[[], datetime]) -> float | None:
    if text is None:
        return None
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - few answers have a date

    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    seconds = (aware - now()).total_seconds()
    return seconds if seconds >= 0 else None
