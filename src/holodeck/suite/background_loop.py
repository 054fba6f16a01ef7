"""An event loop of one's own for callers that are not async, kept from call to call."""

import asyncio
import contextvars
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines one after the other on the same loop.

    An adapter's async client belongs to the loop it was first used on, so a loop for each call
    would break it at the second one.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._turn = threading.Lock()
        self._task: asyncio.Task[None] | None = None
        weakref.finalize(self, _close, self._runner)

    def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the coroutine gives; in a thread beside a loop that runs already (a notebook)."""
        if not _is_inside_a_loop():
            return self._run(make)
        outcome: list[T] = []
        failure: list[BaseException] = []
        context = contextvars.copy_context()

        def work() -> None:
            try:
                outcome.append(context.run(self._run, make))
            except BaseException as error:  # noqa: BLE001 - carried over to the one who waits
                failure.append(error)

        thread = threading.Thread(target=work, name="holodeck-suite", daemon=True)
        thread.start()
        try:
            thread.join()
        except BaseException:  # Ctrl-C in a notebook
            self._cancel()
            raise
        if failure:
            raise failure[0]
        return outcome[0]

    def _run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        outcome: list[T] = []

        async def work() -> None:
            self._task = asyncio.current_task()
            # Not returned: asyncio puts the result of its main task into words, all of it.
            outcome.append(await make())

        with self._turn:
            self._runner.run(work(), context=contextvars.copy_context())
            self._task = None
        return outcome[0]

    def _cancel(self) -> None:
        """End what runs in the thread beside; nobody waits for it any more."""
        task = self._task
        if task is not None:
            self._runner.get_loop().call_soon_threadsafe(task.cancel)


def _is_inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _close(runner: asyncio.Runner) -> None:
    """Close the loop of a runner that nobody has any more; `close` would have to run it."""
    if not _is_inside_a_loop():
        runner.close()
        return
    runner.get_loop().close()
