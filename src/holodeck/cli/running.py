"""Runs an executor to its end or to the first Ctrl-C, with something to look at meanwhile."""

import asyncio
import atexit
import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from holodeck.errors import ExecutionError, ExitCode

if TYPE_CHECKING:
    from holodeck.lib.test_runner.executor import TestExecutor
    from holodeck.models.test_result import TestReport

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_to_report(
    executor: "TestExecutor", on_interrupt: Callable[[signal.Signals], None]
) -> "TestReport":
    """The report of all tests; of those that had finished if the run was interrupted."""
    gc.freeze()  # what start-up made stays, so no collection has to look at it
    gc.enable()
    runner = asyncio.Runner()
    try:
        report = runner.run(_until_done(executor, on_interrupt))
    except KeyboardInterrupt:
        atexit.register(_leave, runner)
        return executor.report(interrupted=True)
    except BaseException as error:
        runner.close()
        if isinstance(error, SystemExit):
            raise ExecutionError(
                f"the agent's code asked Python to exit (code {error.code}); raise an error instead"
            ) from error
        raise
    runner.close()
    return report


def _leave(runner: asyncio.Runner) -> None:  # noqa: ARG001 - kept, or its tasks would be mourned
    """End the program without waiting for tasks that do not let themselves be cancelled."""
    os._exit(ExitCode.INTERRUPTED)


async def _until_done(
    executor: "TestExecutor", on_interrupt: Callable[[signal.Signals], None]
) -> "TestReport":
    tests = asyncio.create_task(executor.execute_tests())

    def interrupt(received: signal.Signals) -> None:
        on_interrupt(received)
        tests.cancel()

    try:
        with _first_signal_calls(interrupt):
            await asyncio.wait({tests})
        return executor.report(interrupted=True) if tests.cancelled() else tests.result()
    finally:
        await executor.shutdown()


@contextmanager
def _first_signal_calls(interrupt: Callable[[signal.Signals], None]) -> Iterator[None]:
    """SIGINT and SIGTERM call `interrupt` once; a second one does what it always does."""
    loop = asyncio.get_running_loop()
    # A job started in the background ignores SIGINT, and is right to.
    heeded = [one for one in _SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]

    def first(received: signal.Signals) -> None:
        forget()
        interrupt(received)

    def forget() -> None:
        for one in heeded:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(one)

    for one in heeded:
        # Where loops cannot handle signals, KeyboardInterrupt ends the run just as well.
        with suppress(NotImplementedError):
            loop.add_signal_handler(one, first, one)
    try:
        yield
    finally:
        forget()
