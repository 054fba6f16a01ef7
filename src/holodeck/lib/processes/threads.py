"""Threads beside the event loop, and event loops beside the caller.

Blocking calls run in threads. Coroutines run on an event loop of their own for callers that are not
async or must not block.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import inspect
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

from holodeck.lib.support.signatures import is_async
from holodeck.lib.support.text import describe

T = TypeVar("T")

EXIT_WAIT_S = 0.5
"""How long the exit of the program waits for threads that are about to end."""
_user_calls: set[object] = set()
"""One object for each call of a user's function that runs in a thread."""
_ending: set[threading.Thread] = set()
_lock = threading.Lock()


async def gather_all(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently and return their results; the first error cancels the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


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
    A coroutine gets a task of its own: if it cancels its task, the test case goes on.
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
    """Whether a function of the user runs in a thread, maybe beyond its time limit."""
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


class RunLoop(asyncio.SelectorEventLoop):
    """An event loop whose tasks cannot stop it: all other tasks would never go on."""

    def stop(self) -> None:
        """Stop once the main task is done. Raises RuntimeError in a task."""
        if asyncio.current_task(self) is not None:
            raise RuntimeError("stop() of the event loop would end the run; remove the call")
        super().stop()


class BackgroundRun(Generic[T]):
    """A coroutine that runs in a daemon thread with the caller's context variables.

    Args:
        make: Makes the coroutine.
        thread_name: The name of the thread.
        run: Runs a coroutine in the thread; the default does so on a new event loop.
    """

    def __init__(
        self,
        make: Callable[[], Coroutine[Any, Any, T]],
        thread_name: str,
        run: Callable[[Coroutine[Any, Any, None]], object] = asyncio.run,
    ) -> None:
        self.outcome: Future[T] = Future()
        """What the coroutine returns or raises."""
        self.outcome.set_running_or_notify_cancel()
        self._make = make
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_cancelled = False
        context = contextvars.copy_context()
        self.thread = threading.Thread(
            target=context.run, args=(self._work, run), name=thread_name, daemon=True
        )
        self.thread.start()

    def cancel(self) -> None:
        """Cancel the coroutine if it still runs, without waiting."""
        self._is_cancelled = True
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop is closed: the coroutine has ended
                self._loop.call_soon_threadsafe(self._task.cancel)

    def _work(self, run: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        try:
            run(self._main())
        except BaseException as error:
            if self.outcome.done():
                raise
            self.outcome.set_exception(error)

    async def _main(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._is_cancelled:
            return
        try:
            result = await self._make()
        except BaseException as error:  # noqa: BLE001 - passed on to the caller
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(result)


class LoopThread:
    """An event loop in a daemon thread, for what callers on any loop or none share.

    It starts with the first coroutine, and again with the first coroutine after `close`.

    Args:
        name: The name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the thread; to cancel the future cancels it."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_forever, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self, limit_s: float, *last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """End the loop after the last coroutines, and wait for that for so many seconds at most."""

        async def finish() -> None:
            try:
                await asyncio.gather(*(make() for make in last), return_exceptions=True)
            finally:
                asyncio.get_running_loop().stop()

        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(finish(), loop)
            if thread is not threading.current_thread():
                thread.join(limit_s)


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    with closing(loop):
        loop.run_forever()


class BackgroundLoop:
    """An event loop for callers that are not async, which outlives each call.

    An async client belongs to the loop that it was first used on, so a loop for each call would
    break it at the second call.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=RunLoop)
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _close, self._runner)

    def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what the coroutine returns.

        It runs in a background thread where a loop runs already (a notebook).
        """
        if _is_inside_a_loop():
            background = BackgroundRun(make, "holodeck-background", self._run)
            try:
                background.thread.join()
            except BaseException:  # Ctrl-C in a notebook
                background.cancel()
                raise
            return background.outcome.result()
        results: list[T] = []

        async def main() -> None:
            # Not returned: asyncio makes a repr of the result of its main task, all of it.
            results.append(await make())

        self._run(main())
        return results[0]

    def abandon(self) -> None:
        """Never close the loop, which belongs to another process."""
        self._finalizer.detach()

    def _run(self, main: Coroutine[Any, Any, None]) -> None:
        with self._lock:
            self._runner.run(main, context=contextvars.copy_context())


class SharedLoop:
    """The event loop of all calls in this process, so that an agent's client works in each.

    A call inside of another, or at the same time in another thread, has a loop of its own.
    """

    def __init__(self) -> None:
        self._loop: BackgroundLoop | None = None
        self._inherited: list[BackgroundLoop] = []
        self._is_taken = threading.Lock()
        os.register_at_fork(after_in_child=self._start_over)

    def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what the coroutine returns; tasks that it leaves behind are cancelled."""
        if not self._is_taken.acquire(blocking=False):
            return BackgroundLoop().run(make)
        try:
            if self._loop is None:
                self._loop = BackgroundLoop()
            return self._loop.run(partial(_leave_nothing, make))
        finally:
            self._is_taken.release()

    def _start_over(self) -> None:
        """Leave the loop to the process that it was forked from."""
        self._is_taken = threading.Lock()
        if self._loop is not None:
            self._loop.abandon()
            self._inherited.append(self._loop)
            self._loop = None


async def _leave_nothing(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    executor = ThreadPoolExecutor(thread_name_prefix="asyncio")
    asyncio.get_running_loop().set_default_executor(executor)
    try:
        return await make()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _close(runner: asyncio.Runner) -> None:
    """Close the loop of a runner; `Runner.close` would have to run it."""
    if _is_inside_a_loop():
        runner.get_loop().close()
    else:
        runner.close()
