"""Runs blocking calls in threads beside the event loop."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, TypeVar

from holodeck.lib.support.signatures import is_async
from holodeck.lib.support.text import describe

T = TypeVar("T")

EXIT_WAIT_S = 0.5
"""How long the exit of the program waits for threads that are about to end."""
_user_calls: set[object] = set()
"""One object for each call of a user's function that runs in a thread."""
_ending: set[threading.Thread] = set()
_lock = threading.Lock()


async def run_in_thread(call: Callable[[], T], name: str = "holodeck") -> T:
    """Return what `call` returns in a thread of its own, with the caller's context variables.

    A cancelled call (a time limit) goes on in its thread without blocking anything: unlike a thread
    of a pool, a daemon thread neither takes another call's place nor keeps the program from ending.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Callable[[], T]] = loop.create_future()
    context = contextvars.copy_context()

    def set_outcome(result: Callable[[], T]) -> None:
        if not outcome.done():
            outcome.set_result(result)

    def work() -> None:
        result = _outcome_of(lambda: context.run(call))
        with suppress(RuntimeError):  # the loop is closed: no caller waits any more
            loop.call_soon_threadsafe(set_outcome, result)

    threading.Thread(target=work, name=name, daemon=True).start()
    return (await outcome)()


async def call_user_function(call: Callable[[], Any], function: Callable[..., Any]) -> Any:
    """Return what `call`, which calls the user's `function`, returns, awaited if necessary.

    A function that is not async runs in a thread, so that it blocks no other and time limits apply.
    A coroutine gets a task of its own: one that cancels its task must not cancel the test case.
    """
    if is_async(function):
        value = call()
    else:
        value = await run_in_thread(partial(_call_user_function, call), "holodeck-user-code")
    if not inspect.isawaitable(value):
        return value
    return (await asyncio.create_task(_awaited(value)))()


async def _awaited(value: Awaitable[T]) -> Callable[[], T]:
    """Return a function that returns or raises the outcome.

    A task that raised SystemExit or KeyboardInterrupt would end the event loop.
    """
    try:
        result = await value
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - raised again by the caller
        return partial(_fail, error)
    return lambda: result


def _fail(error: BaseException) -> NoReturn:
    raise error


def _call_user_function(call: Callable[[], Any]) -> Any:
    running = object()
    _user_calls.add(running)
    try:
        return call()
    finally:
        _user_calls.discard(running)


def is_user_code_running() -> bool:
    """Whether a function of the user runs in a thread, such as one that exceeded its time limit."""
    return bool(_user_calls)


def _outcome_of(call: Callable[[], T]) -> Callable[[], T]:
    """Return a function that returns or raises what `call` returned or raised.

    `sys.exit()` and the like become RuntimeError; in the event loop, they would end the program.
    """
    try:
        value = call()
    except Exception as error:  # noqa: BLE001 - raised again by the caller
        failure = error
    except BaseException as error:  # noqa: BLE001 - as above
        failure = RuntimeError(describe(error))
        failure.__cause__ = error
    else:
        return lambda: value
    return partial(_fail, failure)


def join_at_exit(thread: threading.Thread) -> None:
    """Wait a moment for a daemon thread that is about to end before Python exits.

    Python stops daemon threads wherever they are, and crashes if that is inside of some libraries.
    """
    with _lock:
        if not _ending:
            atexit.register(_wait_for_threads)
        _ending.difference_update([ended for ended in _ending if not ended.is_alive()])
        _ending.add(thread)


def _wait_for_threads() -> None:
    ends = time.monotonic() + EXIT_WAIT_S
    for thread in [*_ending]:
        thread.join(max(0.0, ends - time.monotonic()))


def is_cancelled() -> bool:
    """Whether the running task was cancelled, as opposed to something that it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
