"""`holodeck test --watch`: a run, and another one after each change of what it read.

Each round is a process of its own, so no code of the user's is ever older than its file.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from holodeck.cli.read_tracker import (
    States,
    affects_every_case,
    changed_files,
    file_state,
    load_read_files,
)
from holodeck.errors import ExitCode

FLAG = "--watch"
EVERY_S = 0.1
"""How often files are looked at. Asking the system to be told of changes needs a library of its
own for each system, and works on neither network drives nor mounted folders."""
QUIET_S = 0.2
"""For so long nothing must change before a round begins; editors save in several steps."""
_ENDS = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}
_MOST_NAMES = 5


class _Ended(BaseException):
    """Ctrl-C, or SIGTERM."""

    def __init__(self, received: signal.Signals) -> None:
        super().__init__(received)
        self.received = received


def watch_command(agent_config: Path, args: Sequence[str]) -> int:
    """Run `holodeck` with `args` again and again, until Ctrl-C; the exit code for that."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with _signals_raise():
                _rounds(agent_config, args, Path(folder, "told.json"))
        except _Ended as end:
            return _ENDS[end.received]


def _rounds(agent_config: Path, args: Sequence[str], told: Path) -> NoReturn:
    path = str(agent_config.absolute())
    known: States = {path: file_state(path)}
    last: str | None = None
    while True:
        told.unlink(missing_ok=True)
        known = _as_now(known)  # a round that breaks, or runs nothing, does not come to all files
        _run(_round_args(args, told, last))
        run, states = load_read_files(told)
        known |= states
        last = run or last
        _say(f"Watching {len(known)} files and folders; Ctrl-C ends it")
        edited = _next_change(known)
        last = None if affects_every_case(edited) else last
        _say(f"{time.strftime('%H:%M:%S')} changed: {_listed(edited, agent_config.parent)}")


def _round_args(args: Sequence[str], told: Path, last: str | None) -> list[str]:
    """The arguments with what a round needs in place of `--watch`.

    A round that resumes runs the cases that the change touches, and those that ended in an error.
    """
    own = ["--tell-watcher", str(told)]
    if last is not None:
        own += ["--resume", last, "--force", "--retry-errors"]
    at = args.index(FLAG)
    return [*args[:at], *own, *args[at + 1 :]]


def _run(args: Sequence[str]) -> None:
    """One round to its end; signals are passed on to it once each, and end the watching."""
    # -B: of a file that is saved twice within a second, Python takes the old bytecode for current.
    command = [sys.executable, "-P", "-B", "-m", "holodeck", *args]
    group = None if sys.platform == "win32" else 0  # or a terminal would send Ctrl-C to both
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=group)
    end: _Ended | None = None
    while child.returncode is None:
        try:
            child.wait()
        except _Ended as received:
            end = received
            child.send_signal(received.received)
    if end is not None:
        raise end


def _next_change(known: States) -> list[str]:
    """Wait for a change, and until nothing changes any more; the files that changed."""
    edited: list[str] = []
    while not edited:
        edited = changed_files(known)
        if not edited:
            time.sleep(EVERY_S)
    before = None
    while (now := _as_now(known)) != before:
        before = now
        time.sleep(QUIET_S)
    return changed_files(known) or edited


def _as_now(states: States) -> States:
    return {path: file_state(path) for path in states}


def _say(text: str) -> None:
    click.echo(text, err=True)


def _listed(paths: Sequence[str], folder: Path) -> str:
    names = [os.path.relpath(path, folder) for path in paths]
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Ctrl-C and SIGTERM raise _Ended; a job in the background ignores SIGINT, and is right to."""

    def end(number: int, _: FrameType | None) -> None:
        raise _Ended(signal.Signals(number))

    heeded = [one for one in _ENDS if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, end) for one in heeded}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
