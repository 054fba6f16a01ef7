"""A process that kills other processes once holodeck has ended, however it ended.

The guard runs this file as a program. It reads process groups from stdin, `+123` to watch a group
and `-123` for a group that has ended. At the end of stdin, which comes with the end of holodeck, it
kills those that are left, with all their descendants in the group. The user's Python may import
this module: it needs the standard library of Python 3.9.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

CLOSE_S = 3.0
"""How long the guard may take to end, which has nothing to do any more."""


class Guard:
    """Watches process groups from any thread; its process runs while there is a group to watch."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()
        self._lock = threading.Lock()

    def watch(self, group: int) -> None:
        """Kill the group once holodeck has ended."""
        with self._lock:
            self._groups.add(group)
            self._process = self._process or subprocess.Popen(
                [sys.executable, "-I", "-S", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            _write(self._process, f"+{group}\n")

    def release(self, group: int) -> None:
        """No longer watch the group, which has ended."""
        with self._lock:
            self._groups.discard(group)
            if self._process is None:
                return
            _write(self._process, f"-{group}\n")
            if not self._groups:
                process, self._process = self._process, None
                _end(process)


GUARD = Guard()
"""The guard of this process."""


def kill_group(group: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process and all that it has started, unless they left its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _write(process: subprocess.Popen[bytes], line: str) -> None:
    if process.stdin is not None:
        with suppress(BrokenPipeError):  # somebody ended it
            process.stdin.write(line.encode())
            process.stdin.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(CLOSE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> None:
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        group = int(line[1:])
        groups.add(group) if line[:1] == b"+" else groups.discard(group)
    for group in groups:
        kill_group(group)


if __name__ == "__main__":
    main()
