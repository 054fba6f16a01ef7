"""Runs test cases so that Ctrl-C, SIGTERM and code that exits lose no results."""

import asyncio
import atexit
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol, TypeVar

from holodeck.errors import ExecutionError, ExitCode
from holodeck.lib.processes.process_exit import ProcessExit, exit_now, process_exit_forbidden
from holodeck.lib.processes.threads import RunLoop
from holodeck.lib.support.text import describe
from holodeck.lib.ui.live import active_live_line, echo

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_DEFAULT_HANDLERS: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
_LOOP_TIMEOUT_S = 0.4
"""How long the event loop may take to handle a signal."""


class InterruptibleRun(Protocol[R_co]):
    """Runs test cases; a `TestExecutor`, for example."""

    async def execute_tests(self) -> R_co:
        """Run all cases and report."""

    def report(self, *, interrupted: bool = False) -> R_co:
        """Return the report of the results so far."""

    async def shutdown(self) -> None:
        """Close everything. May be called twice."""


@dataclass
class Interruption:
    """The first signal of a run."""

    received: signal.Signals | None = None
    """None if there was none."""
    is_announced: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a run that the signal ended."""
        is_terminated = self.received is signal.SIGTERM
        return ExitCode.TERMINATED if is_terminated else ExitCode.INTERRUPTED

    def announce(self) -> None:
        """Say once that the run stops."""
        if self.is_announced:
            return
        self.is_announced = True
        self.received = self.received or signal.SIGINT
        line = active_live_line()
        with nullcontext() if line is None else line.pause():
            echo("Interrupted: stopping; press Ctrl-C again to abort", err=True)


def run_to_report(tests: InterruptibleRun[R], interruption: Interruption) -> R:
    """Return the report of all tests; after an interruption, of those that had finished."""
    runner = asyncio.Runner(loop_factory=RunLoop)
    try:
        with process_exit_forbidden():
            report = runner.run(_run_until_done(tests, interruption))
    except KeyboardInterrupt:
        interruption.announce()
        # Passing the runner keeps it alive: tasks may not let themselves be cancelled.
        atexit.register(_leave, runner, interruption)
        return tests.report(interrupted=True)
    except BaseException as error:
        with suppress(SystemExit):  # of a further task; the first exit counts
            runner.close()
        if isinstance(error, Exception):
            raise
        raise ExecutionError(_explain_exit(error)) from error
    runner.close()
    return report


def _explain_exit(error: BaseException) -> str:
    if isinstance(error, ProcessExit):
        return str(error)
    if isinstance(error, SystemExit):
        return f"the agent's code asked Python to exit (code {error.code}); raise an error instead"
    return (
        f"the agent's code raised {describe(error)}, which is not a subclass of Exception;"
        " raise an Exception instead"
    )


def _leave(_: asyncio.Runner, interruption: Interruption) -> None:
    exit_now(interruption.exit_code)


async def _run_until_done(runner: InterruptibleRun[R], interruption: Interruption) -> R:
    tests = asyncio.create_task(runner.execute_tests())

    def interrupt() -> None:
        interruption.announce()
        tests.cancel()

    try:
        with _handle_first_signal(interrupt, interruption):
            await asyncio.wait({tests})
        return runner.report(interrupted=True) if tests.cancelled() else tests.result()
    finally:
        await runner.shutdown()


@contextmanager
def _handle_first_signal(
    interrupt: Callable[[], None], interruption: Interruption
) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM call `interrupt` and a second act as by default.

    If user code blocks the event loop, the first raises KeyboardInterrupt in it.
    """
    loop = asyncio.get_running_loop()
    # A background job ignores SIGINT, and must go on doing so.
    handled = [
        number for number in _DEFAULT_HANDLERS if signal.getsignal(number) is not signal.SIG_IGN
    ]
    # A signal handler may interrupt code that holds any lock, so all it needs is created here.
    no_signal, loop_responded = threading.Lock(), threading.Event()
    no_signal.acquire()
    threading.Thread(
        target=_interrupt_blocked_loop, args=(no_signal, loop_responded), daemon=True
    ).start()

    def on_first(number: int, _: FrameType | None) -> None:
        restore()
        interruption.received = signal.Signals(number)
        loop.call_soon_threadsafe(loop_responded.set)
        loop.call_soon_threadsafe(interrupt)
        no_signal.release()

    def restore() -> None:
        for number in handled:
            signal.signal(number, _DEFAULT_HANDLERS[number])

    for number in handled:
        loop.add_signal_handler(number, lambda: None)  # wakes the loop up
        signal.signal(number, on_first)
    try:
        yield
    finally:
        restore()
        loop_responded.set()
        if no_signal.locked():
            no_signal.release()


def _interrupt_blocked_loop(no_signal: threading.Lock, loop_responded: threading.Event) -> None:
    """Raise KeyboardInterrupt in the main thread if a signal came and the loop is blocked."""
    no_signal.acquire()  # never released: whoever ends the wait may have done so already
    if loop_responded.wait(_LOOP_TIMEOUT_S):
        return
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
