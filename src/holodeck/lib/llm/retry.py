"""Retries with backoff: how often, after which wait, and for how long a server asks to wait."""

import asyncio
import logging
import math
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, TypeVar

from pydantic import Field

from holodeck.lib.ui.activity import activity
from holodeck.models.base import Model

T = TypeVar("T")

logger = logging.getLogger(__name__)

MAX_CONNECTION_ATTEMPTS = 3
"""Attempts to connect to a server that has not answered anything yet."""
MAX_CONNECTION_DELAY_S = 1.0
"""The longest wait between these."""


@dataclass(frozen=True)
class Wait:
    """The wait before a request is sent again."""

    reason: str
    """Why the last attempt failed."""
    retry: int
    """The number of the next retry, from 1."""
    max_retries: int
    seconds: float

    @property
    def next_retry(self) -> str:
        """Such as `retry 3 of 5 in 4.0 s`."""
        return f"{self._number} in {self.seconds:.1f} s"

    def displayed(self) -> AbstractContextManager[None]:
        """Return a context during which the progress display shows the wait."""
        number = self._number
        return activity(
            number, timed=f"{number} in {{time}}", seconds=self.seconds, reason=self.reason
        )

    @property
    def _number(self) -> str:
        return f"retry {self.retry} of {self.max_retries}"


on_wait: ContextVar[Callable[[Wait], None] | None] = ContextVar("holodeck_on_wait", default=None)
"""Callback for the wait before each retry of a request; a judge counts them."""


class RetryConfig(Model):
    """How often a call is retried, and how long to wait in between."""

    max_retries: Annotated[int, Field(ge=0)] = 3
    """Retries after the first attempt; 0 means none."""
    base_delay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0
    """Longest wait after the first attempt, in seconds."""
    max_delay: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    """Longest wait after any attempt, in seconds."""
    exponential_base: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 2.0
    """Factor by which the longest wait grows with each attempt."""
    every_error: bool = False
    """Whether to retry any error, not only transient ones."""


def backoff_delay(
    attempt: int, config: RetryConfig, rng: Callable[[], float] = random.random
) -> float:
    """Return the seconds to wait after attempt number `attempt` (from 1), with full jitter.

    `rng` returns numbers from 0 to 1.
    """
    try:
        longest = config.base_delay * config.exponential_base ** (attempt - 1)
    except OverflowError:
        longest = config.max_delay
    return rng() * min(longest, config.max_delay)


def connection_delay(attempt: int, config: RetryConfig) -> float:
    """Return the seconds to wait for a server that has not answered yet, without jitter."""
    return min(MAX_CONNECTION_DELAY_S, backoff_delay(attempt, config, rng=lambda: 1.0))


def with_attempts(message: str, attempts: int) -> str:
    """Return an error message with the number of attempts, if there was more than one."""
    return f"{message} (after {attempts} attempts)" if attempts > 1 else message


async def retry(  # noqa: PLR0913 - each caller decides differently
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
    """Return what `call` returns, after at most `attempts` attempts.

    An error that is not transient, and the error of the last attempt, are raised unchanged.
    `delay_for(error, attempt)` returns the wait in seconds after attempt number `attempt` (from 1);
    it may raise to end the retries. `on_retry(error, attempt, delay)` is called before each wait.
    `is_down(error)` says that the server never answered; then there are fewer attempts. With
    `describe`, each wait is logged, displayed and passed to `on_wait`.
    """
    if attempts < 1:
        raise ValueError(f"attempts is {attempts}; at least 1 is needed")
    attempt = 0
    while True:
        attempt += 1
        try:
            return await call()
        except Exception as error:
            server_is_down = is_down is not None and is_down(error)
            allowed = min(attempts, MAX_CONNECTION_ATTEMPTS) if server_is_down else attempts
            if attempt >= allowed or not is_transient(error):
                raise
            delay = delay_for(error, attempt)
            if on_retry is not None:
                on_retry(error, attempt, delay)
            wait = None
            if describe is not None:
                wait = Wait(describe(error), attempt, allowed - 1, delay)
                _note_wait(wait)
        with nullcontext() if wait is None else wait.displayed():
            await sleep(delay)


def _note_wait(wait: Wait) -> None:
    logger.info("%s, %s", wait.reason, wait.next_retry)
    listener = on_wait.get()
    if listener is not None:
        listener(wait)


def _now() -> datetime:
    return datetime.now(UTC)


def parse_retry_after(
    headers: Mapping[str, str], now: Callable[[], datetime] = _now
) -> float | None:
    """Return the seconds that a response asks to wait; None if it does not, or not readably.

    `retry-after-ms` wins over `Retry-After`, which holds seconds or an HTTP date. Negative
    numbers and dates in the past are ignored.
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
