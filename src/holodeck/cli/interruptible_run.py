"""Runs an executor so that signals, and code under test that closes streams, lose no results."""

import _thread
import asyncio
import atexit
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol, TextIO, TypeVar

from holodeck.errors import ExecutionError, ExitCode
from holodeck.lib.processes.process_exit import ProcessExit, exit_now, process_exit_forbidden
from holodeck.lib.processes.run_loop import RunLoop
from holodeck.lib.support.text import describe
from holodeck.lib.ui.live import echo

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_DEFAULT_HANDLERS: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
_LOOP_TIMEOUT_S = 0.4
"""How long the event loop may take to handle a signal."""


class Runner(Protocol[R_co]):
    """Runs test cases; a `TestExecutor`, for example."""

    async def execute_tests(self) -> R_co:
        """Run all cases and report."""
        ...

    def report(self, *, interrupted: bool = False) -> R_co:
        """Return the report of the results so far."""
        ...

    async def shutdown(self) -> None:
        """Close everything. May be called twice."""
        ...


@dataclass
class _Interruption:
    """The first signal of a run."""

    callback: Callable[[signal.Signals], None]
    received: signal.Signals = signal.SIGINT
    is_reported: bool = False

    def report(self) -> None:
        if not self.is_reported:
            self.is_reported = True
            self.callback(self.received)


def run_to_report(executor: Runner[R], on_interrupt: Callable[[signal.Signals], None]) -> R:
    """Return the report of all tests; after an interruption, of those that had finished."""
    runner = asyncio.Runner(loop_factory=RunLoop)
    interruption = _Interruption(on_interrupt)
    try:
        with process_exit_forbidden():
            report = runner.run(_run_until_done(executor, interruption))
    except KeyboardInterrupt:
        interruption.report()
        # Passing the runner keeps it alive: tasks may not let themselves be cancelled.
        atexit.register(_leave, runner, interruption)
        return executor.report(interrupted=True)
    except BaseException as error:
        with suppress(SystemExit):  # of a further task; the first one counts
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


def _leave(_: asyncio.Runner, interruption: _Interruption) -> None:
    is_terminated = interruption.received == signal.SIGTERM
    exit_now(ExitCode.TERMINATED if is_terminated else ExitCode.INTERRUPTED)


async def _run_until_done(executor: Runner[R], interruption: _Interruption) -> R:
    tests = asyncio.create_task(executor.execute_tests())

    def interrupt() -> None:
        interruption.report()
        tests.cancel()

    try:
        with _handle_first_signal(interrupt, interruption):
            await asyncio.wait({tests})
        return executor.report(interrupted=True) if tests.cancelled() else tests.result()
    finally:
        await executor.shutdown()


@contextmanager
def _handle_first_signal(
    interrupt: Callable[[], None], interruption: _Interruption
) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM call `interrupt` and a second one act as by default.

    If user code blocks the event loop, the first one raises KeyboardInterrupt in it.
    """
    loop = asyncio.get_running_loop()
    # A background job ignores SIGINT, and must go on doing so.
    handled = [one for one in _DEFAULT_HANDLERS if signal.getsignal(one) is not signal.SIG_IGN]
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
        for one in handled:
            signal.signal(one, _DEFAULT_HANDLERS[one])

    for one in handled:
        with suppress(NotImplementedError):
            loop.add_signal_handler(one, lambda: None)  # wakes the loop up
        signal.signal(one, on_first)
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
    if sys.platform == "win32":
        _thread.interrupt_main()
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


class _StreamCopy(io.TextIOWrapper):
    """A stream to the same file as another one; it stays open when the other is closed."""

    def __init__(self, original: TextIO) -> None:
        descriptor = os.dup(original.fileno())
        file = io.BufferedWriter(io.FileIO(descriptor, "w"))
        super().__init__(file, encoding=original.encoding, errors=original.errors)
        self._original = original

    def write(self, text: str, /) -> int:
        with suppress(OSError, ValueError):
            self._original.flush()  # keeps the order of what both streams write
        return super().write(text)


@contextmanager
def protected_streams() -> Iterator[TextIO]:
    """Yield a stream to stdout that code under test cannot close.

    Afterwards, `sys.stdout` and `sys.stderr` write to where they wrote before. A warning on stderr
    names those that were closed.
    """
    originals = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    copies = {name: _copy_of(stream) for name, stream in originals.items()}
    try:
        yield copies["stdout"] or sys.stdout
    finally:
        closed = [name for name, copy in copies.items() if copy and _is_closed(originals, name)]
        for name, copy in copies.items():
            if copy is None:
                continue
            is_lost = name in closed or getattr(sys, name) is not originals[name]
            if is_lost or not _flush(copy):  # the last flush of the program writes the rest
                setattr(sys, name, copy)
            else:
                copy.close()
        for name in closed:
            echo(f"WARNING: code under test closed {name}; holodeck reopened it", err=True)


def _copy_of(stream: TextIO | None) -> _StreamCopy | None:
    """Return a copy; None for a stream without a file descriptor."""
    if stream is None:
        return None
    try:
        return _StreamCopy(stream)
    except (AttributeError, OSError, ValueError):
        return None


def _flush(stream: TextIO) -> bool:
    """Flush the stream; return whether that worked."""
    try:
        stream.flush()
    except OSError:
        return False
    return True


def _is_closed(originals: dict[str, TextIO], name: str) -> bool:
    """Return whether the stream or its file is closed, or was removed from `sys`."""
    original = originals[name]
    if original.closed or getattr(sys, name) is None:
        return True
    try:
        os.fstat(original.fileno())
    except (OSError, ValueError):
        return True
    return False
