"""Kill the processes of agents once holodeck has ended, however it ended.

A program of its own: `python guard.py` reads process groups from stdin, `+123` for one to watch and
`-123` for one that has ended. At the end of stdin, which comes with the end of holodeck, it kills
those that are left, with all their descendants in the group.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        group = int(line[1:])
        groups.add(group) if line[:1] == b"+" else groups.discard(group)
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
