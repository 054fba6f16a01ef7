"""Rows of the terminal that are redrawn below the others, and the progress of downloads."""

import atexit
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractContextManager,
    contextmanager,
    nullcontext,
    redirect_stdout,
    suppress,
)
from typing import TextIO

from holodeck.lib.support.text import clip, columns_of, inert, inert_but_colored, one_line
from holodeck.lib.ui.terminal import can_redraw, can_show, width

_MAX_NAME = 60
_PERCENT_STEP = 10
"""Between two lines where nothing can be redrawn."""
_MEGABYTE = 1_000_000
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_CLEAR_TO_END = "\r\x1b[J"
_CLEAR_LINE = "\x1b[K"
SPARE_COLUMNS = 3
"""Columns that stay free, for the `^C` that a terminal writes when it is pressed."""
_IN_ASCII = str.maketrans({"…": "...", "✓": "+", "✗": "x", "⚠": "!", "≈": "~", "–": "-"})
"""For streams that cannot show the characters."""
_NOTE_S = 5.0
"""A note disappears after so many seconds, even if nobody removes it."""

_showing: "list[LiveLine]" = []


def active_live_line() -> "LiveLine | None":
    """Return the live line that is on the terminal now."""
    return _showing[-1] if _showing else None


def live_line_hidden() -> AbstractContextManager[None]:
    """Hide the live line, if there is one, so that others can write to the terminal."""
    line = active_live_line()
    return nullcontext() if line is None else line.pause()


def show_progress(text: str) -> None:
    """Show what takes its time: in the live line, else as a line on stderr."""
    line = active_live_line()
    if line is None:
        write_text(sys.stderr, one_line(text, 200) + "\n")
    else:
        line.note(one_line(text, 200))


class LiveLine:
    """Redraws the rows of `current()` on a terminal; elsewhere, `heartbeat()` ends a silence.

    A thread draws it, so that it moves while the event loop is busy. Everything else must be
    written to the terminal by `write()` or inside `paused()`. If it is not enabled, only `write()`
    has an effect.
    """

    def __init__(
        self,
        current: Callable[[], str],
        heartbeat: Callable[[], str] | None = None,
        *,
        out: TextIO | None = None,
        err: TextIO | None = None,
        redraw_every: float = 0.1,
        heartbeat_every: float = 30.0,
        enabled: bool = True,
    ) -> None:
        self._current = current
        self._heartbeat = heartbeat
        self._out = sys.stdout if out is None else out
        self._err = sys.stderr if err is None else err
        self._live = enabled and can_redraw(self._out)
        self._enabled = enabled
        self._pause = redraw_every if self._live else heartbeat_every / 10
        self._heartbeat_every = heartbeat_every
        self._drawn: list[str] = []
        self._drawn_columns = 0
        self._pauses = 0
        self._note = ("", 0.0)
        self._last_output = time.monotonic()
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "LiveLine":
        if self._live:
            _showing.append(self)
            atexit.register(self._show_cursor)
            self._put(_HIDE_CURSOR)
        if self._live or (self._enabled and self._heartbeat is not None):
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._clear()
            if self._live:
                _showing.remove(self)
                self._show_cursor()
                atexit.unregister(self._show_cursor)

    def write(self, text: str) -> None:
        """Write a line that stays."""
        with self.pause():
            write_text(self._out, text + "\n")

    def note(self, text: str) -> None:
        """Show `text` instead of the current line for a few seconds; an empty text removes it."""
        self._note = (text, time.monotonic())

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Hide the live line, so that others can write to the terminal."""
        with self._lock:
            self._clear()
            self._pauses += 1
            try:
                yield
            finally:
                self._pauses -= 1
            self._last_output = time.monotonic()
            is_shown = self._live and self._thread is not None and not self._stopped.is_set()
            if is_shown and not self._pauses:
                self._draw()  # at once, as a gap until the next time would flicker

    def _run(self) -> None:
        while not self._stopped.wait(self._pause):
            with self._lock:
                if self._live:
                    self._draw()
                elif time.monotonic() - self._last_output >= self._heartbeat_every:
                    self._last_output = time.monotonic()
                    if self._heartbeat is not None and (text := self._heartbeat()):
                        write_text(self._err, text + "\n")

    def _draw(self) -> None:
        note, since = self._note
        text = note if note and time.monotonic() - since < _NOTE_S else self._current()
        columns = width(self._out)
        room = max(columns - SPARE_COLUMNS, 1)
        rows = [clip(row, room) for row in inert(text).split("\n") if row]
        if not rows:
            self._clear()
            return
        if self._drawn and columns == self._drawn_columns and len(rows) >= len(self._drawn):
            # Writing over the old rows does not flicker, which erasing them first does.
            start = _up(len(self._drawn) - 1) + "\r"
        else:
            start = self._erase_sequence()
        self._drawn, self._drawn_columns = rows, columns
        self._put(start + f"{_CLEAR_LINE}\n".join(rows) + _CLEAR_LINE)

    def _clear(self) -> None:
        if self._drawn:
            self._put(self._erase_sequence())
            self._drawn = []

    def _erase_sequence(self) -> str:
        """Return what erases the drawn rows, which wrap if the window has become narrower."""
        if not self._drawn:
            return ""
        columns = width(self._out)
        wrapped = sum((columns_of(row) - 1) // columns for row in self._drawn)
        return _up(len(self._drawn) - 1 + wrapped) + _CLEAR_TO_END

    def _show_cursor(self) -> None:
        self._put(_SHOW_CURSOR)

    def _put(self, text: str) -> None:
        if not can_show(text, self._out):  # each character keeps its width
            encoding = self._out.encoding
            text = text.replace("…", "~").encode(encoding, "replace").decode(encoding)
        write_raw(self._out, text)


def _up(rows: int) -> str:
    """Return what moves the cursor up."""
    return f"\x1b[{rows}A" if rows > 0 else ""


def echo(text: object = "", *, err: bool = False, escape: Callable[[str], str] = inert) -> None:
    """Print a line to stdout or stderr; `escape` makes what others wrote in it inert."""
    write_raw(sys.stderr if err else sys.stdout, escape(str(text)) + "\n")


def write_text(stream: TextIO, text: str) -> None:
    """Write text of which only the colors are obeyed, by whoever reads it."""
    write_raw(stream, inert_but_colored(text))


def write_raw(stream: TextIO, text: str) -> None:
    """Write and flush our own sequences and commands, or text that is already inert.

    Errors are ignored, so that they cannot end a run. Unwritten text stays in the buffer of the
    stream, and the last flush of the program fails.
    """
    with suppress(OSError, ValueError):  # ValueError: the stream is closed
        if not can_show(text, stream):
            encoding, plain = stream.encoding or "ascii", text.translate(_IN_ASCII)
            text = plain.encode(encoding, "backslashreplace").decode(encoding)
        stream.write(text)
        stream.flush()


class DownloadProgress:
    """Shows how far downloads are; call it with (bytes done, total or None, name).

    On a terminal it is a note on the live line or, if there is none, a live line of its own, which
    goes away at the end and, for a context manager, after an error. Elsewhere it is a line every
    10 %.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._live = can_redraw(self._stream)
        self._printed: dict[str, int] = {}
        self._text = ""
        self._line: LiveLine | None = None

    def __call__(self, done_bytes: int, total_bytes: int | None, what: str) -> None:
        """Show that `done_bytes` of `what` are downloaded."""
        self._text = _describe(done_bytes, total_bytes, what)
        if not self._live:
            self._print(done_bytes, total_bytes, what)
        elif self._line is not None and done_bytes == total_bytes:
            self.__exit__()
        elif self._line is None and (line := active_live_line()) is not None:
            line.note("" if done_bytes == total_bytes else self._text)
        elif self._line is None:
            self._line = LiveLine(lambda: self._text, out=self._stream)
            self._line.__enter__()
            with self._line.pause():
                pass  # the line is drawn at once

    def __enter__(self) -> "DownloadProgress":
        return self

    def __exit__(self, *_: object) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.__exit__()

    def _print(self, done: int, total: int | None, what: str) -> None:
        # Without a total, a line for every 10 MB stands in for a line every 10 %.
        position = 100 * done // total if total else done // _MEGABYTE
        step = position - position % _PERCENT_STEP
        if step > self._printed.get(what, -1):
            self._printed[what] = step
            write_text(self._stream, self._text + "\n")


class IngestionProgress:
    """Shows how many documents a tool has read; call it with (documents done, total, tool's name).

    It is a note on the live line or, if there is none, a line on stderr every few seconds.
    """

    def __init__(self) -> None:
        self._printed_at = time.monotonic()

    def __call__(self, done: int, total: int, tool: str) -> None:
        """Show that `done` of the documents that changed are ingested."""
        text = f"Ingesting documents for {one_line(tool, _MAX_NAME)}: {done} of {total}"
        line = active_live_line()
        if line is not None:
            line.note("" if done == total else text)
        elif done < total and time.monotonic() - self._printed_at >= _NOTE_S:
            self._printed_at = time.monotonic()
            write_text(sys.stderr, text + "\n")

    def finish(self, summary: str) -> None:
        """Print what was done."""
        with live_line_hidden():
            write_text(sys.stderr, inert(summary, keep_newlines=False) + "\n")


def _describe(done: int, total: int | None, what: str) -> str:
    amount = f"{done / _MEGABYTE:.0f} MB"
    if total:
        amount = f"{100 * done // total}% of {total / _MEGABYTE:.0f} MB"
    return f"Downloading {one_line(what, _MAX_NAME)}: {amount}"


class _StreamCopy(io.TextIOWrapper):
    """A stream to the same file as another stream; it stays open when the other is closed."""

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


@contextmanager
def stdout_for_report() -> Iterator[TextIO]:
    """Yield a stream to stdout, to which nothing else can write: all other output goes to stderr.

    That holds for code under test and its processes, too.
    """
    stdout = sys.stdout
    try:
        target, instead = stdout.fileno(), sys.stderr.fileno()
    except OSError:  # they were replaced by objects without files
        with redirect_stdout(sys.stderr):
            yield stdout
        return
    copy = _StreamCopy(stdout)
    os.dup2(instead, target)
    try:
        with redirect_stdout(sys.stderr):
            yield copy
    finally:
        os.dup2(copy.fileno(), target)
        with suppress(OSError):  # whoever wrote the report has said so
            copy.close()


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
