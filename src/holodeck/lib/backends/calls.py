"""The limits of an agent call: how long it may take, and how often it is tried."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from holodeck.errors import BackendError, BackendSessionError, BackendTimeoutError
from holodeck.lib.limiter import MOST_SLOTS, time_limit
from holodeck.lib.threads import is_cancelled
from holodeck.models.config import ExecutionConfig, Setting
from holodeck.models.test_result import Attempt

T = TypeVar("T")


@dataclass(frozen=True)
class CallLimits:
    """What one agent call may take."""

    timeout: float | None
    """Seconds for the whole call, retries included; None: no limit."""
    attempt_timeout: float | None
    """Seconds for one try; None: no limit of its own."""
    retries: int
    retry_delay: float
    """Longest wait before the first retry, in seconds."""


def limits_of(execution: ExecutionConfig | None) -> CallLimits:
    """The limits that the settings say; their defaults where nothing is set."""
    given = execution or ExecutionConfig()
    return CallLimits(
        timeout=_setting(given, "llm_timeout"),
        attempt_timeout=_setting(given, "attempt_timeout"),
        retries=_setting(given, "max_retries"),
        retry_delay=_setting(given, "retry_delay"),
    )


def most_at_once(execution: ExecutionConfig | None) -> int:
    """The bound of `--parallel` on requests; `auto` leaves the limiter its own."""
    wanted = execution.parallel_test_cases if execution else None
    return wanted if isinstance(wanted, int) else MOST_SLOTS


def _setting(execution: ExecutionConfig, field: str) -> Any:
    value = getattr(execution, field)
    if value is not None:
        return value
    metadata = ExecutionConfig.model_fields[field].metadata
    return next(item.default for item in metadata if isinstance(item, Setting))


async def limited(
    call: Callable[[], Awaitable[T]], limit_s: float | None, attempts: Sequence[Attempt] = ()
) -> T:
    """What `call` gives within `limit_s` seconds (None: no limit).

    Raises BackendTimeoutError when time is up, with the `attempts` made until then; a BackendError
    of the call as it is, and anything else it raises as BackendSessionError. Cancellation of the
    caller passes through.
    """
    try:
        async with time_limit(limit_s) as scope:
            return await call()
    except BackendError:
        raise
    except TimeoutError as error:
        if scope.expired():
            raise BackendTimeoutError(f"no answer within {limit_s:g} s", attempts) from error
        raise _session_error(error, attempts) from error
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise BackendSessionError("the agent cancelled itself", attempts) from error
    except (Exception, SystemExit) as error:
        raise _session_error(error, attempts) from error


def _session_error(error: BaseException, attempts: Sequence[Attempt]) -> BackendSessionError:
    return BackendSessionError(in_words(error), attempts)


def in_words(error: BaseException) -> str:
    """Type and message of what an agent raised; of our own errors the message."""
    if isinstance(error, BackendError):
        return str(error)
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a user's exception may fail to say what it is
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
