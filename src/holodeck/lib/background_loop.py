"""Coroutines on an event loop of their own, for callers that are not async or must not block."""

import asyncio
import contextvars
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")


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


class BackgroundLoop:
    """An event loop for callers that are not async, which outlives each call.

    An async client belongs to the loop that it was first used on, so a loop for each call would
    break it at the second one.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._runner)

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

    def _run(self, main: Coroutine[Any, Any, None]) -> None:
        with self._lock:
            self._runner.run(main, context=contextvars.copy_context())


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
