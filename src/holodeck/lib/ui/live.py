"""One line of a terminal that keeps changing, under the lines that stay."""

import atexit
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TextIO

from holodeck.lib.text import clip, columns_of
from holodeck.lib.ui.terminal import can_redraw, width

_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_CLEAR_TO_END = "\r\x1b[J"
_NOTE_LASTS = 5.0  # seconds, so that one that is never taken back goes away

_showing: "list[LiveLine]" = []


def showing() -> "LiveLine | None":
    """The live line that owns the terminal now, for whoever else has something to show there."""
    return _showing[-1] if _showing else None


class LiveLine:
    """Redraws `current()` on a terminal; elsewhere says `heartbeat()` when all has been still.

    A thread and not a task draws it, so that it moves while the event loop is busy. Everything
    else that goes to the same terminal has to be written inside `paused()` or by `write()`. With
    `enabled` false only `write()` does anything.
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
        self._drawn = ""
        self._note = ("", 0.0)
        self._last_sign_of_life = time.monotonic()
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "LiveLine":
        if self._live:
            _showing.append(self)
            atexit.register(self._show_cursor)
            self._put(_HIDE_CURSOR)
        if self._live or (self._enabled and self._heartbeat is not None):
            self._thread = threading.Thread(target=self._keep_going, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._clear()
            if self._live:
                _showing.remove(self)
                self._show_cursor()
                atexit.unregister(self._show_cursor)

    def write(self, text: str) -> None:
        """Put `text` and a line end where it stays."""
        with self.paused():
            put(self._out, text + "\n")

    def note(self, text: str) -> None:
        """Show `text` instead of the current line for a few seconds; empty takes it back."""
        self._note = (text, time.monotonic())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The live line is away and nothing draws it; counts as a sign of life."""
        with self._lock:
            self._clear()
            yield
            self._last_sign_of_life = time.monotonic()

    def _keep_going(self) -> None:
        while not self._over.wait(self._pause):
            with self._lock:
                if self._live:
                    self._draw()
                elif time.monotonic() - self._last_sign_of_life >= self._heartbeat_every:
                    self._beat()

    def _beat(self) -> None:
        self._last_sign_of_life = time.monotonic()
        text = self._heartbeat() if self._heartbeat is not None else ""
        if text:
            put(self._err, text + "\n")

    def _draw(self) -> None:
        # A line that reaches the last column wraps on some terminals and cannot be cleared.
        note, since = self._note
        text = note if note and time.monotonic() - since < _NOTE_LASTS else self._current()
        line = clip(text, width(self._out) - 1)
        if line or self._drawn:
            back = self._way_back()
            self._drawn = line
            self._put(back + line)

    def _clear(self) -> None:
        if self._drawn:
            self._put(self._way_back())
            self._drawn = ""

    def _way_back(self) -> str:
        """To where the drawn line begins, and clear; it wraps when the window has shrunk."""
        if not self._drawn:
            return ""
        rows = (columns_of(self._drawn) - 1) // width(self._out)
        return (f"\x1b[{rows}A" if rows > 0 else "") + _CLEAR_TO_END

    def _show_cursor(self) -> None:
        self._put(_SHOW_CURSOR)

    def _put(self, text: str) -> None:
        put(self._out, text)


def put(stream: TextIO, text: str) -> None:
    """Write and flush; a reader that is gone is no reason to lose a run.

    What could not be written stays in the stream's buffer, and the last flush of the program fails.
    """
    with suppress(OSError, ValueError):  # ValueError: the stream is closed
        try:
            stream.write(text)
        except UnicodeEncodeError:
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
