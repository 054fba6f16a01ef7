"""Time limits and retries of calls to models and agents."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from holodeck.errors import BackendError, BackendSessionError, BackendTimeoutError
from holodeck.lib.exceptions import describe
from holodeck.lib.llm.limiter import GROWTH_INTERVAL_S, Limiters, time_limit
from holodeck.lib.threads import is_cancelled
from holodeck.models.config import ExecutionConfig, Setting
from holodeck.models.outcome import Attempt


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
    answer_bytes: int
    """Of one answer; what is larger is not read to its end."""


def call_limits(execution: ExecutionConfig | None) -> CallLimits:
    """The limits that the settings say; their defaults where nothing is set."""
    given = execution or ExecutionConfig()
    return CallLimits(
        timeout=_setting(given, "llm_timeout"),
        attempt_timeout=_setting(given, "attempt_timeout"),
        retries=_setting(given, "max_retries"),
        retry_delay=_setting(given, "retry_delay"),
        answer_bytes=round(_setting(given, "max_answer_mb") * 1_000_000),
    )


def build_limiters(execution: ExecutionConfig | None) -> Limiters:
    """As many slots as `--parallel` asks for, soon; `auto` leaves it to limiter and endpoint."""
    wanted = execution.parallel_test_cases if execution else None
    return Limiters(wanted, quiet_s=GROWTH_INTERVAL_S) if isinstance(wanted, int) else Limiters()


def _setting(execution: ExecutionConfig, field: str) -> Any:
    value = getattr(execution, field)
    if value is not None:
        return value
    metadata = ExecutionConfig.model_fields[field].metadata
    return next(item.default for item in metadata if isinstance(item, Setting))


T = TypeVar("T")

_of_case: ContextVar[float | None] = ContextVar("holodeck_case_timeout", default=None)


@contextmanager
def override_call_limit(seconds: float | None) -> Iterator[None]:
    """Let each call of the agent in the block take so long, whatever its backend says otherwise.

    None leaves it to the backend.
    """
    token = _of_case.set(seconds)
    try:
        yield
    finally:
        _of_case.reset(token)


def current_call_limit(limit_s: float | None) -> float | None:
    """The limit of a call of the agent: that of the case, else the given one."""
    own = _of_case.get()
    return limit_s if own is None else own


async def call_with_limit(
    call: Callable[[], Awaitable[T]], limit_s: float | None, attempts: Sequence[Attempt] = ()
) -> T:
    """What `call` gives within `limit_s` seconds (None: no limit), or within the case's own limit.

    Raises BackendTimeoutError when time is up, with the `attempts` made until then; a BackendError
    of the call as it is, and anything else it raises as BackendSessionError. Cancellation of the
    caller passes through.
    """
    limit_s = current_call_limit(limit_s)
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
    return BackendSessionError(describe(error), attempts)
