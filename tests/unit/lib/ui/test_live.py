"""The live line on a real pseudo terminal, and the heartbeat where there is none."""

import fcntl
import io
import itertools
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from contextlib import contextmanager, suppress

import pytest

from fakes import render
from holodeck.lib.ui.live import DownloadProgress, LiveLine, write_text


class Screen:
    """Our side of a pseudo terminal: reads all the time, so that the writer never waits."""

    def __init__(self, columns):
        self._ours, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self.resize(columns)
        self.columns = columns
        self.raw = b""
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def resize(self, columns):
        fcntl.ioctl(self.stream, termios.TIOCSWINSZ, struct.pack("HHHH", 10, columns, 0, 0))

    def _read(self):
        while True:
            try:
                data = os.read(self._ours, 4096)
            except OSError:
                return
            with self._news:
                self.raw += data
                self._news.notify_all()

    def wait_for(self, text, since=0):
        """How much had come when `text` was there."""
        with self._news:
            assert self._news.wait_for(lambda: text.encode() in self.raw[since:], 60), self.raw
            return len(self.raw)

    def close(self):
        self.stream.close()
        self._reader.join(10)
        os.close(self._ours)


@contextmanager
def a_screen(columns=80):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        screen = Screen(columns)
        try:
            yield screen
        finally:
            screen.close()


def shown(screen):
    return render(screen.raw, screen.columns, 10)


def test_finished_lines_stay_above_the_line_that_moves():
    with a_screen() as screen:
        with LiveLine(lambda: "spinning", out=screen.stream, redraw_every=0.01) as live:
            screen.wait_for("spinning")
            live.write("first done")
            after = screen.wait_for("first done")
            screen.wait_for("spinning", since=after)
            live.write("second done")
        screen.wait_for("\x1b[?25h")

        assert shown(screen) == "first done\nsecond done"


def test_the_cursor_comes_back_when_the_work_breaks():
    with a_screen() as screen:
        line = LiveLine(lambda: "spinning", out=screen.stream, redraw_every=0.01)
        with suppress(KeyboardInterrupt), line:
            screen.wait_for("spinning")
            raise KeyboardInterrupt
        screen.wait_for("\x1b[?25h")

        assert screen.raw.startswith(b"\x1b[?25l")
        assert shown(screen) == ""


def test_a_line_wider_than_the_terminal_is_clipped_to_one_row():
    with a_screen(columns=20) as screen:
        text = "日本語 " * 10
        with LiveLine(lambda: text, out=screen.stream, redraw_every=0.01) as live:
            after = screen.wait_for("…")
            screen.wait_for("…", since=after)
            live.write("done")
        screen.wait_for("\x1b[?25h")

        assert shown(screen) == "done"


def test_a_line_that_wraps_because_the_window_shrank_is_cleared_whole():
    with a_screen(columns=60) as screen:
        line = LiveLine(lambda: "x" * 50, out=screen.stream, redraw_every=0.01)
        with line as live:
            screen.wait_for("x" * 50)
            screen.resize(20)
            live.write("done")

            screen.wait_for("\x1b[2A\r\x1b[J")


def test_a_download_takes_over_the_live_line_instead_of_drawing_a_second_one():
    with a_screen() as screen:
        with LiveLine(lambda: "spinning", out=screen.stream, redraw_every=0.01):
            show = DownloadProgress(screen.stream)
            show(1_000_000, 4_000_000, "smollm2")
            at = screen.wait_for("Downloading smollm2: 25% of 4 MB")
            show(4_000_000, 4_000_000, "smollm2")
            screen.wait_for("spinning", since=at)
        screen.wait_for("\x1b[?25h")

        assert shown(screen) == ""


def test_a_line_that_is_not_enabled_only_writes():
    with a_screen() as screen:
        with LiveLine(lambda: "spinning", out=screen.stream, enabled=False) as live:
            live.write("done")
        screen.wait_for("done")

        assert screen.raw == b"done\r\n"


def test_off_a_terminal_only_finished_lines_are_written():
    out, err = io.StringIO(), io.StringIO()
    with LiveLine(lambda: "spinning", lambda: "beat", out=out, err=err) as live:
        live.write("first done")

    assert out.getvalue() == "first done\n"
    assert err.getvalue() == ""


class Log(io.StringIO):
    """Tells when something was written."""

    def __init__(self):
        super().__init__()
        self.written = threading.Event()

    def write(self, text):
        self.written.set()
        return super().write(text)


def test_off_a_terminal_a_still_run_shows_that_it_lives():
    out, err = io.StringIO(), Log()
    beat = "still running: 3 of 10 done, 60 s"
    with LiveLine(str, lambda: beat, out=out, err=err, heartbeat_every=0.02):
        assert err.written.wait(60)

    assert err.getvalue().startswith(f"{beat}\n")
    assert out.getvalue() == ""


def test_a_reader_that_left_does_not_break_the_run():
    program = """
import os, sys
from holodeck.lib.ui.live import DownloadProgress
from holodeck.lib.ui.live import LiveLine
with LiveLine(str) as live:
    for _ in range(3):
        live.write("x" * 100_000)
sys.stderr.write("finished")
sys.stderr.flush()
os._exit(0)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        child.stdout.close()
        assert child.stderr.read() == b"finished"


def test_what_an_encoding_cannot_say_is_spelled_out():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")

    write_text(stream, "✓ done… 日\n")

    assert raw.getvalue() == b"+ done... \\u65e5\n"


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_two_rows_are_redrawn_in_place_and_leave_nothing(columns):
    frames = itertools.count()

    def rows():
        return f"frame {next(frames)} {'━' * 300}\nsecond {'row ' * 99}"

    with a_screen(columns) as screen:
        with LiveLine(rows, out=screen.stream, redraw_every=0.01) as live:
            after = screen.wait_for("frame 3 ")
            live.write("first done")
            screen.wait_for("frame", since=after)
            live.write("second done")
        screen.wait_for("\x1b[?25h")

        assert shown(screen) == "first done\nsecond done"
        assert screen.raw.count(b"\x1b[J") == 3  # for the lines that stay, and at the end


def test_rows_that_wrap_because_the_window_shrank_are_cleared_and_drawn_narrower():
    with a_screen(columns=60) as screen:
        rows = f"{'x' * 50}\n{'y' * 50}"
        with LiveLine(lambda: rows, out=screen.stream, redraw_every=0.01):
            screen.wait_for("y" * 50)
            screen.resize(20)
            screen.wait_for(f"\x1b[5A\r\x1b[J{'x' * 16}…\x1b[K\r\n{'y' * 16}…")


def test_a_terminal_without_unicode_gets_one_column_for_each_of_its_own():
    with a_screen() as screen:
        file = screen.stream.fileno()
        with (
            open(file, "w", encoding="ascii", closefd=False) as stream,
            LiveLine(lambda: "━━ 1/2…", out=stream, redraw_every=0.01),
        ):
            screen.wait_for("?? 1/2~")
