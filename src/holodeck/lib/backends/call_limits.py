"""The limits of an agent call: how long it may take, and how often it is tried."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from holodeck.errors import BackendError, BackendSessionError, BackendTimeoutError
from holodeck.lib.exceptions import describe
from holodeck.lib.limiter import time_limit
from holodeck.lib.threads import is_cancelled
from holodeck.models.outcome import Attempt

T = TypeVar("T")

_of_case: ContextVar[float | None] = ContextVar("holodeck_case_timeout", default=None)


@contextmanager
def case_call_limit(seconds: float | None) -> Iterator[None]:
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
