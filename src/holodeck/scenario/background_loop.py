"""A run in a thread and on an event loop of its own, so that what blocks it blocks no other."""

import asyncio
import contextvars
import threading
from contextlib import suppress

from holodeck.lib.conversation.participants import TimeLimitExceeded
from holodeck.lib.conversation.result_listeners import notify_result_listeners
from holodeck.lib.conversation.script_run import ScriptRun
from holodeck.lib.conversation.types import ScenarioResult
from holodeck.lib.threads import join_at_exit

GRACE_S = 0.1
"""So much later than a limit, a run is left behind that its own loop could not stop."""


async def run_on_background_loop(run: ScriptRun) -> ScenarioResult:
    """Return the result of a run that may block; raise what broke it.

    Whoever cancels is back at once; the run is left behind.
    """
    beside = _Beside(run)
    try:
        return await beside.result()
    finally:
        beside.leave()


class _Beside:
    """One run in its thread, as seen from the caller's event loop."""

    def __init__(self, run: ScriptRun) -> None:
        self._run = run
        self._caller = asyncio.get_running_loop()
        self._outcome: asyncio.Future[ScenarioResult] = self._caller.create_future()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_left = False
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=lambda: context.run(asyncio.run, self._main()),
            name="holodeck-scenario",
            daemon=True,
        )
        self._thread.start()

    async def result(self) -> ScenarioResult:
        """Return the result. Raises OutOfTime for a run that cannot be stopped in time."""
        while True:
            wait = self._longest_wait()
            done, _ = await asyncio.wait([self._outcome], timeout=wait)
            if done:
                return self._outcome.result()
            left = self._run.clock.seconds_left()
            if left is not None and left[0] < -GRACE_S / 2:
                late = TimeLimitExceeded(left[1])
                notify_result_listeners(self._run.name, self._run.broken(late))
                self._run.note_place(late)
                raise late

    def leave(self) -> None:
        """Stop the run if it is not over; nobody waits for it."""
        self._is_left = True
        if not self._outcome.done():
            self._outcome.cancel()
            join_at_exit(self._thread)
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop is closed: the run is over
                self._loop.call_soon_threadsafe(self._task.cancel)

    def _longest_wait(self) -> float | None:
        """Until the next limit can have been over for a while; None if there are no limits."""
        left = self._run.clock.seconds_left()
        config = self._run.config
        known = [one for one in (config.call_timeout, config.timeout) if one is not None]
        known += [max(0.0, left[0])] if left is not None else []
        return min(known) + GRACE_S if known else None

    async def _main(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._is_left:
            return
        try:
            result = await self._run.run()
        except (SystemExit, asyncio.CancelledError, GeneratorExit) as error:
            # Raised as it is, sys.exit() of an adapter would end the caller's loop.
            ended = RuntimeError(self._run.broken(error).reasoning)
            ended.__cause__ = error
            self._send(ended)
        except BaseException as error:  # noqa: BLE001 - carried over: what ends a test, or all of them
            self._send(error)
        else:
            self._send(result)

    def _send(self, outcome: ScenarioResult | BaseException) -> None:
        with suppress(RuntimeError):  # the caller's loop is closed: nobody waits any more
            self._caller.call_soon_threadsafe(self._settle, outcome)

    def _settle(self, outcome: ScenarioResult | BaseException) -> None:
        if self._outcome.done():
            return
        if isinstance(outcome, BaseException):
            self._outcome.set_exception(outcome)
        else:
            self._outcome.set_result(outcome)
