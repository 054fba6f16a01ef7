"""The standard streams during a run: code under test may close them, the results still come out."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

import click

_NAMES = ("stdout", "stderr")


class _Copy(io.TextIOWrapper):
    """A stream to the same file as another one, which stays open when the other is closed."""

    def __init__(self, original: TextIO) -> None:
        descriptor = os.dup(original.fileno())
        file = io.BufferedWriter(io.FileIO(descriptor, "w"))
        super().__init__(file, encoding=original.encoding, errors=original.errors)
        self._original = original

    def write(self, text: str, /) -> int:
        """Write after what the other stream holds back."""
        with suppress(OSError, ValueError):
            self._original.flush()
        return super().write(text)


@contextmanager
def streams_kept() -> Iterator[TextIO]:
    """Give a stream to stdout that code under test cannot close.

    After the block `sys.stdout` and `sys.stderr` write to where they wrote before it. A warning on
    stderr names those that were closed.
    """
    originals = {name: getattr(sys, name) for name in _NAMES}
    copies = {name: _copy_of(stream) for name, stream in originals.items()}
    try:
        yield copies["stdout"] or sys.stdout
    finally:
        closed = [name for name in _NAMES if copies[name] and _is_closed(originals[name], name)]
        for name, copy in copies.items():
            if copy is None:
                continue
            is_lost = name in closed or getattr(sys, name) is not originals[name]
            if is_lost or not _is_flushed(copy):  # what it still holds is for the last flush
                setattr(sys, name, copy)
            else:
                copy.close()
        for name in closed:
            click.echo(f"WARNING: code under test closed {name}; holodeck reopened it", err=True)


def _copy_of(stream: TextIO | None) -> _Copy | None:
    """A copy; None for a stream that is no file of the system."""
    if stream is None:
        return None
    try:
        return _Copy(stream)
    except (AttributeError, OSError, ValueError):
        return None


def _is_flushed(copy: TextIO) -> bool:
    """Whether everything that was written is out."""
    try:
        copy.flush()
    except OSError:
        return False
    return True


def _is_closed(original: TextIO, name: str) -> bool:
    """Whether the stream is closed, or its file, or `sys` has none any more."""
    if original.closed or getattr(sys, name) is None:
        return True
    try:
        os.fstat(original.fileno())
    except (OSError, ValueError):
        return True
    return False
