"""Streams to the terminal that code under test cannot close."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from holodeck.lib.ui.live import echo


class _StreamCopy(io.TextIOWrapper):
    """A stream to the same file as another one; it stays open when the other is closed."""

    def __init__(self, original: TextIO) -> None:
        descriptor = os.dup(original.fileno())
        file = io.BufferedWriter(io.FileIO(descriptor, "w"))
        super().__init__(file, encoding=original.encoding, errors=original.errors)
        self._original = original

    def write(self, text: str, /) -> int:
        with suppress(OSError, ValueError):
            self._original.flush()  # keeps the order of what both streams write
        return super().write(text)


@contextmanager
def protected_streams() -> Iterator[TextIO]:
    """Yield a stream to stdout that code under test cannot close.

    Afterwards, `sys.stdout` and `sys.stderr` write to where they wrote before. A warning on stderr
    names those that were closed.
    """
    originals = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    copies = {name: _copy_of(stream) for name, stream in originals.items()}
    try:
        yield copies["stdout"] or sys.stdout
    finally:
        closed = [name for name, copy in copies.items() if copy and _is_closed(originals, name)]
        for name, copy in copies.items():
            if copy is None:
                continue
            is_lost = name in closed or getattr(sys, name) is not originals[name]
            if is_lost or not _flush(copy):  # the last flush of the program writes the rest
                setattr(sys, name, copy)
            else:
                copy.close()
        for name in closed:
            echo(f"WARNING: code under test closed {name}; holodeck reopened it", err=True)


def _copy_of(stream: TextIO | None) -> _StreamCopy | None:
    """Return a copy; None for a stream without a file descriptor."""
    if stream is None:
        return None
    try:
        return _StreamCopy(stream)
    except (AttributeError, OSError, ValueError):
        return None


def _flush(stream: TextIO) -> bool:
    """Flush the stream; return whether that worked."""
    try:
        stream.flush()
    except OSError:
        return False
    return True


def _is_closed(originals: dict[str, TextIO], name: str) -> bool:
    """Return whether the stream or its file is closed, or was removed from `sys`."""
    original = originals[name]
    if original.closed or getattr(sys, name) is None:
        return True
    try:
        os.fstat(original.fileno())
    except (OSError, ValueError):
        return True
    return False
