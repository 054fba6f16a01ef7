"""Keeps the code of agents and graders from ending the process before there is a verdict.

`os._exit(0)` in an agent would end a run with exit code 0 and without a report. While a run is
under way it raises ProcessExit instead, which becomes an error of the test case, as `sys.exit()`
does. `os.execv` and what is built on it would put another program in place of the run, and are
treated alike. In a forked child (multiprocessing, a daemon) all of them do what they always do.
"""

import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from holodeck.errors import ExecutionError

leave: Callable[[int], NoReturn] = os._exit
"""The real `os._exit`, for our own use."""

_NAMES = ("_exit", "execv", "execve")
_OWN_THREADS = "holodeck"
"""What the names of threads begin with whose exceptions reach the test case."""
_SKIPPED = {__file__, os.__file__}


class ProcessExit(SystemExit):
    """The user's code tried to end the process; the message says where."""


class _Guard:
    """How many runs are under way in this process, and the exits that none of them saw."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth = 0
        self.pid = 0
        self.unseen: list[str] = []
        self.functions: set[Callable[..., Any]] = set()
        """Those that stand in for functions of `os`."""

    @property
    def is_active(self) -> bool:
        return self.depth > 0 and self.pid == os.getpid()


_guard = _Guard()


def forbid_process_exit() -> None:
    """Let the user's code end this process no more, also while Python shuts down."""
    with _guard.lock:
        if _guard.pid != os.getpid():  # a fork of a process that had runs under way
            _guard.pid, _guard.depth = os.getpid(), 0
            _guard.unseen.clear()
        _guard.depth += 1
        _replace_functions()


@contextmanager
def process_exit_forbidden() -> Iterator[None]:
    """Let the user's code not end the process within the block.

    Raises ExecutionError at the end of the block if a thread of the user's tried to: its exception
    reaches no test case.
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


def _replace_functions() -> None:
    for module in (os, sys.modules.get(os.name)):
        for name in _NAMES:
            real = getattr(module, name, None)
            if real is not None and real not in _guard.functions:
                function = _refusing(name, real)
                _guard.functions.add(function)
                setattr(module, name, function)


def _refusing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
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
    """File and line of the call."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename in _SKIPPED:
        frame = frame.f_back
    if frame is None:
        return "an unknown place"
    file = frame.f_code.co_filename
    return f"{file.removeprefix(os.getcwd() + os.sep)}:{frame.f_lineno}"  # noqa: PTH109
