"""How far a download is, on a terminal and in a log."""

import io
import os
import pty

from holodeck.lib.ui.live import DownloadProgress

MB = 1_000_000


def test_in_a_log_there_is_a_line_for_every_tenth():
    out = io.StringIO()
    show = DownloadProgress(out)

    for percent in range(101):
        show(percent * 2 * MB, 200 * MB, "smollm2")

    lines = out.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[0] == "Downloading smollm2: 0% of 200 MB"
    assert lines[-1] == "Downloading smollm2: 100% of 200 MB"


def test_a_download_of_unknown_size_is_counted_in_megabytes():
    out = io.StringIO()
    show = DownloadProgress(out)

    for done in range(0, 25 * MB, MB):
        show(done, None, "x")

    assert out.getvalue().splitlines() == [
        "Downloading x: 0 MB",
        "Downloading x: 10 MB",
        "Downloading x: 20 MB",
    ]


def test_a_name_cannot_steer_the_terminal():
    out = io.StringIO()

    DownloadProgress(out)(1, 2, "a\x1b[2Jb")

    assert "\x1b" not in out.getvalue()


def test_on_a_terminal_there_is_a_bar_that_goes_away(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    ours, slave = pty.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as stream:
        with DownloadProgress(stream) as show:
            show(0, 100 * MB, "[bold]smollm2")
            show(100 * MB, 100 * MB, "[bold]smollm2")
        raw = os.read(ours, 65536).decode()
        while "\x1b[?25h" not in raw:
            raw += os.read(ours, 65536).decode()
    os.close(ours)

    assert "Downloading [bold]smollm2" in raw
    assert raw.count("\x1b[?25l") == raw.count("\x1b[?25h") == 1
