"""End the program without Python's teardown, which frees all objects one by one.

After a run, that takes longer than writing the reports. What a program may rely on still happens in
its usual order: Python waits for threads, calls the `atexit` callbacks and flushes stdout and
stderr. Objects are no longer finalized, so a program that has loaded code of the user, which may
have left a file open, ends in Python's way. So does one that another program runs, such as a
debugger, a profiler or `coverage`.
"""

import atexit
import os
import sys

from holodeck.lib.garbage import has_user_code
from holodeck.lib.process_exit import exit_now

_COMMAND = [("__main__", "<module>")]
_PROGRAMS = (_COMMAND, [*_COMMAND, ("runpy", "_run_code"), ("runpy", "_run_module_as_main")])
"""Module and function of the frames around `main` in `holodeck` and `python -m holodeck`."""


class _End:
    """What is known about the end of this process."""

    pid = 0
    """The process that may end without teardown; forks of it may not."""
    code: int | None = None
    """What it exits with; None as long as it runs."""


def prepare_end() -> None:
    """Let the program end without teardown; its entry point calls this before anything else.

    `atexit` calls the first callback last. If others have been registered, their turn is after
    ours, so the teardown stays.
    """
    if atexit._ncallbacks() or sys.flags.inspect or _callers() not in _PROGRAMS:  # noqa: SLF001
        return
    _End.pid = os.getpid()
    atexit.register(_end)


def exit_with(code: int) -> None:
    """Exit like `sys.exit`."""
    _End.code = code
    sys.exit(code)


def _callers() -> list[tuple[str, str]]:
    """Return the frames around the entry point, the nearest first."""
    frame, found = sys._getframe(2).f_back, list[tuple[str, str]]()  # noqa: SLF001
    while frame is not None:
        found.append((frame.f_globals.get("__name__", ""), frame.f_code.co_name))
        frame = frame.f_back
    return found


def _end() -> None:
    is_interrupted = hasattr(sys, "last_value")  # Ctrl-C after the command was done
    if _End.code is None or has_user_code() or is_interrupted or os.getpid() != _End.pid:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        return  # Python tries again and says what is wrong
    exit_now(_End.code)
