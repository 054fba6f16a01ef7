"""`holodeck test --watch`: runs again whenever a file that the run has read changes.

Each round is a process of its own, so it never uses code that is older than its file. A round
writes the files that it read to a file that the watcher passes as `--tell-watcher`.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
from pydantic import TypeAdapter

from holodeck.cli.agents import find_agents
from holodeck.cli.context import CliContext
from holodeck.config.loader import agent_file
from holodeck.errors import ExitCode
from holodeck.lib.support.source_files import is_users_file
from holodeck.lib.support.text import shorten_list
from holodeck.lib.ui.live import echo

FileState = tuple[int, int, int] | tuple[str, ...] | None
"""Of a file: modification time, size, inode. Of a folder: the names of its data files. None if it
does not exist."""
FileStates = dict[str, FileState]

CONFIGURATION = frozenset({"config.yaml", "config.yml", ".env"})
_DATA_SUFFIXES = (".yaml", ".yml", ".csv", ".jsonl")
_IGNORED_FOLDERS = frozenset({"site-packages", "__pycache__", "node_modules"})
_WRITE_MODES = os.O_WRONLY | os.O_RDWR
_FOLDER_EVENTS = frozenset({"os.listdir", "os.scandir"})
_POLL_S = 0.1
"""Notifications of the system would need a library of their own for each system, and do not work
on network drives and mounted folders."""
_QUIET_S = 0.2
"""A round begins when nothing has changed for so long; editors save in several steps."""
_EXIT_CODES = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}
_MAX_NAMES = 5


class _SignalReceived(BaseException):
    def __init__(self, received: signal.Signals) -> None:
        super().__init__(received)
        self.received = received


def watch_command(paths: Sequence[str], agent: str | None) -> int:
    """Run this process's command again and again; return the exit code of the signal that ends it.

    Raises UsageError unless the paths contain exactly one agent.
    """
    import tempfile

    agent_config = _find_agent_config(paths, agent)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with _signals_raise():
                _run_rounds(agent_config, sys.argv[1:], Path(folder, "read.json"))
        except _SignalReceived as end:
            return _EXIT_CODES[end.received]


@contextmanager
def track_reads(
    file: Path, paths: Sequence[str], agent: str | None, context: CliContext
) -> Iterator[None]:
    """Track the files that this process reads, and write them to `file` for the watcher."""
    tracker = context.read_tracker = ReadTracker(_find_agent_config(paths, agent).parent)
    tracker.start()
    try:
        yield
    finally:
        write_read_files(file, tracker.run, tracker.states())


def _find_agent_config(paths: Sequence[str], agent: str | None) -> Path:
    """Return the only agent.yaml that the paths mean. Raises UsageError."""
    targets = find_agents(paths, agent).targets
    if len(targets) != 1:
        raise click.UsageError(
            f"--watch works with one agent, and the paths contain {len(targets)}"
        )
    return agent_file(targets[0].path)


def _run_rounds(agent_config: Path, args: Sequence[str], read_file: Path) -> NoReturn:
    path = str(agent_config.absolute())
    known: FileStates = {path: file_state(path)}
    last: str | None = None
    while True:
        read_file.unlink(missing_ok=True)
        known = _current(known)  # a round that breaks, or runs nothing, may not read all files
        _run_round(_round_args(args, read_file, last))
        run, states = load_read_files(read_file)
        known |= states
        last = run or last
        echo(f"Watching {len(known)} files and folders; press Ctrl-C to stop", err=True)
        edited = _wait_for_change(known)
        last = None if affects_every_case(edited) else last
        names = [os.path.relpath(path, agent_config.parent) for path in edited]
        echo(f"{time.strftime('%H:%M:%S')} changed: {shorten_list(names, _MAX_NAMES)}", err=True)


def _round_args(args: Sequence[str], read_file: Path, last: str | None) -> list[str]:
    """Replace `--watch`: a round resumes the last run, so that only affected cases run again."""
    own = ["--tell-watcher", str(read_file)]
    if last is not None:
        own += ["--resume", last, "--force", "--retry-errors"]
    index = args.index("--watch")
    return [*args[:index], *own, *args[index + 1 :]]


def _run_round(args: Sequence[str]) -> None:
    """Run a round to its end; pass a signal on to it, and raise it afterwards."""
    import subprocess

    # -B: if a file is saved twice within a second, Python would use its outdated bytecode.
    command = [sys.executable, "-P", "-B", "-m", "holodeck", *args]
    # In a process group of its own, or a terminal would send Ctrl-C to both.
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    end: _SignalReceived | None = None
    while child.returncode is None:
        try:
            child.wait()
        except _SignalReceived as received:
            end = received
            child.send_signal(received.received)
    if end is not None:
        raise end


def _wait_for_change(known: FileStates) -> list[str]:
    """Wait for a change, and until the files are at rest; return the files that changed."""
    while not (edited := changed_files(known)):
        time.sleep(_POLL_S)
    before = None
    while (now := _current(known)) != before:
        before = now
        time.sleep(_QUIET_S)
    return changed_files(known) or edited


def _current(states: FileStates) -> FileStates:
    return {path: file_state(path) for path in states}


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise _SignalReceived; a background job ignores SIGINT."""

    def end(number: int, _: FrameType | None) -> None:
        raise _SignalReceived(signal.Signals(number))

    handled = [code for code in _EXIT_CODES if signal.getsignal(code) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class ReadTracker:
    """Notes which files under a folder this process reads, and their state before that.

    Modules of the user count wherever they are, files that the process writes do not. After
    `stop_tracking` only imported modules do, so that what an agent does to its own files is not
    mistaken for an edit.
    """

    def __init__(self, folder: Path) -> None:
        self.run: str | None = None
        """The id of the run record; None if the run keeps none."""
        self._folder = str(folder.absolute())
        self._seen: FileStates = {}
        self._written: set[str] = set()
        self._is_tracking = True
        self._is_busy = False
        for name in sorted(CONFIGURATION):
            path = str(folder.absolute() / name)
            self._seen[path] = file_state(path)

    def start(self) -> None:
        """Start tracking; an audit hook can never be removed."""
        sys.addaudithook(self._on_event)

    def stop_tracking(self) -> None:
        self._is_tracking = False

    def states(self) -> FileStates:
        """Return what was read, each with its state at that time."""
        modules = [getattr(module, "__file__", None) for module in sys.modules.copy().values()]
        for path in modules:
            if isinstance(path, str) and (self._is_tracked(path) or is_users_file(path)):
                self._seen.setdefault(path, file_state(path))
        return {path: state for path, state in self._seen.items() if path not in self._written}

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if self._is_busy or not (event == "open" or event in _FOLDER_EVENTS):
            return
        self._is_busy = True  # file_state of a folder causes an event, too
        try:
            self._note(event, args)
        finally:
            self._is_busy = False

    def _note(self, event: str, args: tuple[Any, ...]) -> None:
        if not args or not isinstance(args[0], str | os.PathLike):
            return
        path = os.path.abspath(os.fspath(args[0]))  # noqa: PTH100 - a Path costs too much here
        if not isinstance(path, str) or not self._is_tracked(path):
            return
        if event == "open" and args[2] & _WRITE_MODES:
            self._written.add(path)
        elif self._is_tracking and path not in self._seen:
            self._seen[path] = file_state(path)

    def _is_tracked(self, path: str) -> bool:
        """Return whether a user would edit the file: it is in the folder and not hidden."""
        name = os.path.basename(path)  # noqa: PTH119
        if name in CONFIGURATION:
            return True
        if path != self._folder and not path.startswith(self._folder + os.sep):
            return False
        parts = Path(path[len(self._folder) :]).parts
        return not any(part.startswith(".") or part in _IGNORED_FOLDERS for part in parts)


def file_state(path: str) -> FileState:
    """Return the present state of a file or folder; equal states mean that nothing changed."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path costs too much in an audit hook
        if os.path.isdir(path):  # noqa: PTH112
            names = os.listdir(path)  # noqa: PTH208
            return tuple(sorted(name for name in names if name.endswith(_DATA_SUFFIXES)))
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def write_read_files(file: Path, run: str | None, states: FileStates) -> None:
    file.write_text(json.dumps({"run": run, "states": states}), encoding="utf-8")


def load_read_files(file: Path) -> tuple[str | None, FileStates]:
    """Return the run id and the files that a round wrote; nothing if the round broke."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None, {}
    return data["run"], TypeAdapter(FileStates).validate_python(data["states"])


def changed_files(states: FileStates) -> list[str]:
    return [path for path, before in states.items() if file_state(path) != before]


def affects_every_case(paths: Iterable[str]) -> bool:
    """Return whether a change may affect cases whose hashes do not show it: code, and settings."""
    names = [os.path.basename(path) for path in paths]  # noqa: PTH119
    return any(name.endswith(".py") or name in CONFIGURATION for name in names)
