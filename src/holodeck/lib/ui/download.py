"""Shows how far a download is."""

import atexit
import sys
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from holodeck.lib.text import one_line
from holodeck.lib.ui.live import LiveLine, put, showing
from holodeck.lib.ui.terminal import can_redraw, color_enabled

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_NAME_LIMIT = 60
_STEP = 10  # percent between two lines where nothing can be redrawn
_MEGABYTE = 1_000_000


class DownloadProgress:
    """Call it with (bytes done, bytes in all or None, what): a bar, or a line every 10 %.

    It writes to stderr. Use it as a context manager, so that the bar goes away whatever happens.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._live = can_redraw(self._stream)
        self._said: dict[str, int] = {}
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, done_bytes: int, total_bytes: int | None, what: str) -> None:
        """Show that `done_bytes` of `what` are here."""
        line = showing() if self._live else None
        if line is not None:
            self._note(line, done_bytes, total_bytes, what)
        elif self._live:
            self._redraw(done_bytes, total_bytes, what)
        else:
            self._say(done_bytes, total_bytes, what)

    def __enter__(self) -> "DownloadProgress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _say(self, done: int, total: int | None, what: str) -> None:
        # Without a total, a line for every 10 MB stands in for one every 10 %.
        position = 100 * done // total if total else done // _MEGABYTE
        step = position - position % _STEP
        if step <= self._said.get(what, -1):
            return
        self._said[what] = step
        put(self._stream, _sentence(done, total, what) + "\n")

    def _note(self, line: LiveLine, done: int, total: int | None, what: str) -> None:
        line.note("" if done == total else _sentence(done, total, what))

    def _redraw(self, done: int, total: int | None, what: str) -> None:
        bar = self._started()
        if what not in self._tasks:
            name = one_line(what, _NAME_LIMIT)
            self._tasks[what] = bar.add_task("Downloading", total=total, what=name)
        bar.update(self._tasks[what], completed=done, total=total)
        if bar.finished:
            self._stop()

    def _started(self) -> "Progress":
        if self._bar is None:
            self._bar = _new_bar(self._stream)
            self._bar.start()
            atexit.register(self._stop)
        return self._bar

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            atexit.unregister(self._stop)
        self._bar = None
        self._tasks.clear()


def _sentence(done: int, total: int | None, what: str) -> str:
    amount = f"{done / _MEGABYTE:.0f} MB"
    if total:
        amount = f"{100 * done // total}% of {total / _MEGABYTE:.0f} MB"
    return f"Downloading {one_line(what, _NAME_LIMIT)}: {amount}"


def _new_bar(stream: TextIO) -> "Progress":
    from rich.console import Console  # noqa: PLC0415 - only a download on a terminal needs it
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description} {task.fields[what]}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(file=stream, no_color=not color_enabled(stream)),
        transient=True,
    )
