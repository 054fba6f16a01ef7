"""The limits of an agent call: how long it may take, and how often it is tried."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from holodeck.errors import BackendError, BackendSessionError, BackendTimeoutError
from holodeck.lib.limiter import time_limit
from holodeck.lib.threads import is_cancelled
from holodeck.models.attempt import Attempt

T = TypeVar("T")


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
