"""Running what blocks beside the event loop, and telling who was cancelled."""

import asyncio
import atexit
import contextvars
import inspect
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from holodeck.lib.exceptions import describe

T = TypeVar("T")

EXIT_WAIT_S = 0.5
"""How long the end of the program waits for threads that are about to end."""
_leaving: set[threading.Thread] = set()
_lock = threading.Lock()


async def run_in_thread(call: Callable[[], T], name: str = "holodeck") -> T:
    """What `call` gives, computed in a thread of its own with the caller's context variables.

    A call that is cancelled (a time limit) is left behind and holds up nobody: unlike a thread of a
    pool, a daemon thread neither takes another call's place nor keeps the program from ending.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Callable[[], T]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Callable[[], T]) -> None:
        if not outcome.done():
            outcome.set_result(result)

    def work() -> None:
        result = _outcome_of(lambda: context.run(call))
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=work, name=name, daemon=True).start()
    return (await outcome)()


async def call_user_function(call: Callable[[], Any], function: Callable[..., Any]) -> Any:
    """What `call`, which calls a function of the user's, gives in the end.

    What is not async runs in a thread of its own, so that it holds up no other and time limits end
    it; what it returns may still be awaitable.
    """
    if is_async(function):
        return await call()
    value = await run_in_thread(call, "holodeck-user-code")
    return await value if inspect.isawaitable(value) else value


def is_async(call: Callable[..., Any]) -> bool:
    """Whether a function, or an object that can be called, is written with `async def`."""
    if inspect.isclass(call):
        return False
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - asks for the method, not whether there is one
    )


def _outcome_of(call: Callable[[], T]) -> Callable[[], T]:
    """A function that gives or raises again what `call` gave or raised.

    `sys.exit()` and the like would end the program once they reach the event loop; they become
    RuntimeError.
    """
    try:
        value = call()
    except Exception as error:  # noqa: BLE001 - carried over to the one who waits
        failure = error
    except BaseException as error:  # noqa: BLE001 - as above
        failure = RuntimeError(describe(error))
        failure.__cause__ = error
    else:
        return lambda: value

    def fail() -> T:
        raise failure

    return fail


def join_at_exit(thread: threading.Thread) -> None:
    """Let a daemon thread that is about to end do so before Python ends, but not for long.

    Python ends with the daemon threads in the middle of what they do, and crashes if that is inside
    of some libraries.
    """
    with _lock:
        if not _leaving:
            atexit.register(_wait_for_leaving)
        _leaving.difference_update([one for one in _leaving if not one.is_alive()])
        _leaving.add(thread)


def _wait_for_leaving() -> None:
    ends = time.monotonic() + EXIT_WAIT_S
    for thread in [*_leaving]:
        thread.join(max(0.0, ends - time.monotonic()))


def is_cancelled() -> bool:
    """Whether somebody cancelled the running task, as opposed to something it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
