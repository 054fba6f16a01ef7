"""The end of the process: user code cannot cause it before there is a report, and loses nothing.

`os._exit(0)` in an agent would end a run with exit code 0 and without a report. During a run it
raises ProcessExit instead, which becomes an error of the test case, like `sys.exit()`. `os.execv`
and the functions built on it, which replace the process, are treated alike. In a forked child
(multiprocessing, a daemon) all of them work as usual.
"""

import atexit
import gc
import inspect
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from holodeck.errors import ExecutionError

exit_now: Callable[[int], NoReturn] = os._exit
"""The real `os._exit`, for our own use."""

_NAMES = ("_exit", "execv", "execve")
_OWN_THREADS = "holodeck"
"""The name prefix of threads whose exceptions reach the test case."""
_SKIPPED = {__file__, os.__file__}


class ProcessExit(SystemExit):
    """The user's code tried to end the process; the message says where."""


class _Guard:
    """How many runs this process is in, and the exits that no test case has seen."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth = 0
        self.pid = 0
        self.unseen: list[str] = []
        self.functions: set[Callable[..., Any]] = set()
        """The functions that replace those of `os`."""

    @property
    def is_active(self) -> bool:
        return self.depth > 0 and self.pid == os.getpid()


_guard = _Guard()


def forbid_process_exit() -> None:
    """Keep the user's code from ending this process from now on, also while Python shuts down."""
    with _guard.lock:
        if _guard.pid != os.getpid():  # a fork of a process that had runs under way
            _guard.pid, _guard.depth = os.getpid(), 0
            _guard.unseen.clear()
        _guard.depth += 1
        _replace_functions()


@contextmanager
def process_exit_forbidden() -> Iterator[None]:
    """Keep the user's code from ending the process within the block.

    Raises ExecutionError at the end of the block if a thread of the user's tried to, because its
    exception reaches no test case.
    """
    forbid_process_exit()
    try:
        yield
    finally:
        with _guard.lock:
            _guard.depth -= 1
            unseen, _guard.unseen = _guard.unseen, []
    if unseen:
        raise ExecutionError(unseen[0])


def note_process_exit(message: str) -> None:
    """Let the present block raise this at its end: a thread of another process tried to exit."""
    with _guard.lock:
        _guard.unseen.append(message)


def _replace_functions() -> None:
    for module in (os, sys.modules.get(os.name)):
        for name in _NAMES:
            real = getattr(module, name, None)
            if real is not None and real not in _guard.functions:
                function = _refuse_during_runs(name, real)
                _guard.functions.add(function)
                setattr(module, name, function)


def _refuse_during_runs(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        if not _guard.is_active:
            return real(*args, **kwargs)
        shown = repr(args[0]) if args else ""
        message = f"os.{name}({shown}) at {_caller()} would end the run; raise an error instead"
        thread = threading.current_thread()
        if thread is not threading.main_thread() and not thread.name.startswith(_OWN_THREADS):
            _guard.unseen.append(message)
        raise ProcessExit(message)

    return function


def _caller() -> str:
    """Return the file and line of the call."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename in _SKIPPED:
        frame = frame.f_back
    if frame is None:
        return "an unknown place"
    file = frame.f_code.co_filename
    return f"{file.removeprefix(os.getcwd() + os.sep)}:{frame.f_lineno}"  # noqa: PTH109


_WRITERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
_NEW_OBJECTS = 10_000
"""So many new objects start a garbage collection: a run creates many, and keeps most of them."""
_is_command = False
_has_user_code = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause garbage collection while modules are imported, or while a run is prepared.

    Both create many objects and keep them all; examining them again and again takes up to a third
    of the time. At the end they are moved to the oldest generation, if they are many, because the
    next collection of young objects would examine all of them. In a process that runs only our
    code, no collection examines them. What a program of the user has frozen stays frozen.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            is_worth_it = gc.get_count()[0] > _NEW_OBJECTS
            if is_worth_it and (_is_command or not gc.get_freeze_count()):
                gc.freeze()
                if _has_user_code or not _is_command:
                    gc.unfreeze()  # moves what `freeze` took to the oldest generation
            gc.enable()


def note_command() -> None:
    """Note that this process is the command or a worker, and no program of the user's."""
    global _is_command  # noqa: PLW0603 - there is one process
    _is_command = True
    gc.set_threshold(_NEW_OBJECTS)


def note_user_code() -> None:
    """Note that this process runs code of the user."""
    global _has_user_code  # noqa: PLW0603 - there is one process
    _has_user_code = True


def skip_last_collections() -> None:
    """Let Python end without looking for garbage, which takes it up to half a second.

    Not after code of the user: a file that it left open is written when its owner is collected.
    """
    if not _has_user_code:
        gc.freeze()


def finish_user_code() -> None:
    """Do for the user's code what the end of Python would, in a process that ends without it.

    Functions of `atexit` run, and what was written to files that are still open is not lost.
    """
    if not _has_user_code:
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing does in its processes
    for value in gc.get_objects():
        if type(value) in _WRITERS:
            with suppress(OSError, ValueError):  # closed, or a pipe that nobody reads
                value.flush()
