"""What a run has read before its first case: the files that a watcher waits for."""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

State = tuple[int, int, int] | tuple[str, ...] | None
"""Of a file: time of change, size, inode. Of a folder: the names of its data files. None if absent.
"""
States = dict[str, State]

CONFIGURATION = frozenset({"config.yaml", "config.yml", ".env"})
_DATA = (".yaml", ".yml", ".csv", ".jsonl")
_NOT_OURS = frozenset({"site-packages", "__pycache__", "node_modules"})
_TO_WRITE = os.O_WRONLY | os.O_RDWR
_FOLDERS = frozenset({"os.listdir", "os.scandir"})


def file_state(path: str) -> State:
    """What a file or folder is like now; two that are equal need not be looked into."""
    try:
        found = os.stat(path)  # noqa: PTH116 - also called where nothing but os may be
        if os.path.isdir(path):  # noqa: PTH112
            return tuple(sorted(name for name in os.listdir(path) if name.endswith(_DATA)))  # noqa: PTH208
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class ReadTracker:
    """Notes which files under a folder this process reads, and their state right before that.

    What the process writes does not count, and after `stop_tracking` only modules do, so what an
    agent does to its own files is not taken for an edit.
    """

    def __init__(self, folder: Path) -> None:
        self.run: str | None = None
        """The id of the run's record; None without one."""
        self._folder = str(folder.absolute())
        self._seen: States = {}
        self._written: set[str] = set()
        self._is_open = True
        self._is_busy = False
        for name in sorted(CONFIGURATION):
            path = str(folder.absolute() / name)
            self._seen[path] = file_state(path)

    def watch(self) -> None:
        """Begin; Python knows no end to it."""
        sys.addaudithook(self._heard)

    def stop_tracking(self) -> None:
        """From now on only modules count."""
        self._is_open = False

    def states(self) -> States:
        """What was read, and how it was then."""
        modules = [getattr(one, "__file__", None) for one in list(sys.modules.values())]
        for path in modules:
            if isinstance(path, str) and self._is_ours(path):
                self._seen.setdefault(path, file_state(path))
        return {path: one for path, one in self._seen.items() if path not in self._written}

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if self._is_busy or not (event == "open" or event in _FOLDERS):
            return
        self._is_busy = True  # looking at a folder is an event, too
        try:
            self._note(event, args)
        finally:
            self._is_busy = False

    def _note(self, event: str, args: tuple[Any, ...]) -> None:
        if not args or not isinstance(args[0], str | os.PathLike):
            return
        path = os.path.abspath(os.fspath(args[0]))  # noqa: PTH100 - a Path costs too much here
        if not isinstance(path, str) or not self._is_ours(path):
            return
        if event == "open" and args[2] & _TO_WRITE:
            self._written.add(path)
        elif self._is_open and path not in self._seen:
            self._seen[path] = file_state(path)

    def _is_ours(self, path: str) -> bool:
        """Whether a user would edit it: a file of the folder that is not hidden."""
        name = os.path.basename(path)  # noqa: PTH119
        if name in CONFIGURATION:
            return True
        if path != self._folder and not path.startswith(self._folder + os.sep):
            return False
        parts = Path(path[len(self._folder) :]).parts
        return not any(part.startswith(".") or part in _NOT_OURS for part in parts)


def write_read_files(file: Path, run: str | None, states: States) -> None:
    """Write what a watcher needs to know."""
    file.write_text(json.dumps({"run": run, "states": states}), encoding="utf-8")


def load_read_files(file: Path) -> tuple[str | None, States]:
    """The run's id and the files that `tell` wrote; nothing of a run that could not tell."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None, {}
    return told["run"], TypeAdapter(States).validate_python(told["states"])


def changed_files(states: States) -> list[str]:
    """The files that are not as they were."""
    return [path for path, before in states.items() if file_state(path) != before]


def affects_every_case(paths: Iterable[str]) -> bool:
    """Whether a change may concern every case, whatever their hashes say: code, and settings."""
    names = [os.path.basename(path) for path in paths]  # noqa: PTH119
    return any(name.endswith(".py") or name in CONFIGURATION for name in names)
