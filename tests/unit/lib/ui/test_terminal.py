"""What a stream can show, by its nature and the environment."""

import io

import pytest

from holodeck.lib.ui import ANSIColors, SpinnerMixin, colorize, is_tty
from holodeck.lib.ui.terminal import can_redraw, color_enabled, width


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "env", "colored"),
    [
        (Terminal(), {}, True),
        (io.StringIO(), {}, False),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"CLICOLOR_FORCE": "1"}, True),
        (io.StringIO(), {"FORCE_COLOR": "0"}, False),
        (Terminal(), {"CLICOLOR": "0"}, False),
        (Terminal(), {"CLICOLOR": "0", "FORCE_COLOR": "3"}, True),
        (Terminal(), {"TERM": "dumb"}, False),
    ],
    ids=[
        "terminal", "pipe", "no-color", "empty-no-color", "no-color-wins", "force",
        "clicolor-force", "force-0", "clicolor-0", "force-wins", "dumb",
    ],
)  # fmt: skip
def test_colours_follow_the_conventions(stream, env, colored):
    assert color_enabled(stream, env) is colored


def test_a_closed_stream_is_no_terminal():
    stream = io.StringIO()
    stream.close()

    assert not is_tty(stream)


def test_a_dumb_terminal_is_not_redrawn():
    assert can_redraw(Terminal(), {})
    assert not can_redraw(Terminal(), {"TERM": "dumb"})


def test_what_is_no_terminal_has_the_width_of_the_environment(monkeypatch):
    monkeypatch.setenv("COLUMNS", "33")

    assert width(io.StringIO()) == 33


def test_a_colour_is_switched_off_after_the_text():
    assert colorize("x", ANSIColors.RED, force_tty=True) == "\x1b[91mx\x1b[0m"
    assert colorize("x", ANSIColors.RED, force_tty=False) == "x"


def test_a_spinner_goes_through_ten_frames():
    spinner = SpinnerMixin()

    frames = [spinner.get_spinner_char() for _ in range(11)]

    assert len(set(frames)) == 10
    assert frames[10] == frames[0]
