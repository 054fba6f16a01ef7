"""Runs an executor to its end or to the first Ctrl-C, with something to look at meanwhile."""

import _thread
import asyncio
import atexit
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from holodeck.errors import ExecutionError, ExitCode
from holodeck.lib.exceptions import describe
from holodeck.lib.process_exit import ProcessExit, leave, process_exit_forbidden

if TYPE_CHECKING:
    from holodeck.lib.test_runner.executor import TestExecutor
    from holodeck.models.test_result import TestReport

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_USUAL: dict[signal.Signals, Callable[[int, FrameType | None], Any] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
_PATIENCE_SECONDS = 0.4
"""How long the loop may take to hear of a signal."""


@dataclass
class _Stop:
    """The first signal of a run, and who is to hear of it."""

    on_interrupt: Callable[[signal.Signals], None]
    received: signal.Signals = signal.SIGINT
    told: bool = False

    @property
    def code(self) -> ExitCode:
        if self.received == signal.SIGTERM:
            return ExitCode.TERMINATED
        return ExitCode.INTERRUPTED

    def tell(self) -> None:
        if not self.told:
            self.told = True
            self.on_interrupt(self.received)


def run_to_report(
    executor: "TestExecutor", on_interrupt: Callable[[signal.Signals], None]
) -> "TestReport":
    """The report of all tests; of those that had finished if the run was interrupted."""
    gc.freeze()  # what start-up made stays, so no collection has to look at it
    gc.enable()
    runner = asyncio.Runner()
    stop = _Stop(on_interrupt)
    try:
        with process_exit_forbidden():
            report = runner.run(_until_done(executor, stop))
    except KeyboardInterrupt:
        stop.tell()
        atexit.register(_leave, runner, stop)
        return executor.report(interrupted=True)
    except BaseException as error:
        runner.close()
        if isinstance(error, Exception):
            raise
        raise ExecutionError(_about_an_end(error)) from error
    runner.close()
    return report


def _about_an_end(error: BaseException) -> str:
    """Explain what the user's code raised that is not an Exception."""
    if isinstance(error, ProcessExit):
        return str(error)
    if isinstance(error, SystemExit):
        return f"the agent's code asked Python to exit (code {error.code}); raise an error instead"
    return f"the agent's code raised {describe(error)}, which is no Exception; raise one instead"


def _leave(runner: asyncio.Runner, stop: _Stop) -> None:  # noqa: ARG001 - kept, or its tasks would be mourned
    """End the program without waiting for tasks that do not let themselves be cancelled."""
    leave(stop.code)


async def _until_done(executor: "TestExecutor", stop: _Stop) -> "TestReport":
    tests = asyncio.create_task(executor.execute_tests())

    def interrupt() -> None:
        stop.tell()
        tests.cancel()

    try:
        with _first_signal_calls(interrupt, stop):
            await asyncio.wait({tests})
        return executor.report(interrupted=True) if tests.cancelled() else tests.result()
    finally:
        await executor.shutdown()


@contextmanager
def _first_signal_calls(interrupt: Callable[[], None], stop: _Stop) -> Iterator[None]:
    """SIGINT and SIGTERM call `interrupt` once; a second one does what it always does.

    So does the first where the loop does not get to it, since code of the user's blocks it.
    """
    loop = asyncio.get_running_loop()
    # A job started in the background ignores SIGINT, and is right to.
    heeded = [one for one in _SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
    # A signal handler may interrupt code that holds any lock, so all it touches is made before.
    silence, heard = threading.Lock(), threading.Event()
    silence.acquire()
    threading.Thread(target=_insist, args=(silence, heard), daemon=True).start()

    def first(number: int, _: FrameType | None) -> None:
        forget()
        stop.received = signal.Signals(number)
        loop.call_soon_threadsafe(heard.set)
        loop.call_soon_threadsafe(interrupt)
        silence.release()

    def forget() -> None:
        for one in heeded:
            signal.signal(one, _USUAL[one])

    for one in heeded:
        with suppress(NotImplementedError):
            loop.add_signal_handler(one, _woken)
        signal.signal(one, first)
    try:
        yield
    finally:
        forget()
        heard.set()
        if silence.locked():
            silence.release()


def _woken() -> None:
    """All that a signal makes the loop itself do; else it might sleep through it."""


def _insist(silence: threading.Lock, heard: threading.Event) -> None:
    """Raise KeyboardInterrupt in what keeps the loop from hearing of a signal."""
    silence.acquire()  # and not let go of: whoever ends the waiting may already have done so
    if heard.wait(_PATIENCE_SECONDS):
        return
    if sys.platform == "win32":
        _thread.interrupt_main()
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
