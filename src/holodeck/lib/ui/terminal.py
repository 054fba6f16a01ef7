"""The abilities of a terminal: colours, width, a cursor that moves; and tables."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from holodeck.lib.support.text import columns_of

_DEFAULT_COLUMNS = 80


def is_tty(stream: TextIO | None = None) -> bool:
    """Return whether `stream` is a terminal; None means the present stdout."""
    stream = sys.stdout if stream is None else stream
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # None, or a closed stream
        return False


def color_enabled(stream: TextIO | None = None, env: Mapping[str, str] | None = None) -> bool:
    """Return whether to write colours to `stream`; `env` None means the real environment.

    The first that is set wins: NO_COLOR, FORCE_COLOR or CLICOLOR_FORCE, CLICOLOR=0, the terminal.
    """
    env = _environment() if env is None else env
    if env.get("NO_COLOR"):
        return False
    if any(env.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return env.get("CLICOLOR") != "0" and can_redraw(stream, env)


def can_redraw(stream: TextIO | None = None, env: Mapping[str, str] | None = None) -> bool:
    """Return whether `stream` is a terminal that can move its cursor."""
    env = _environment() if env is None else env
    return is_tty(stream) and env.get("TERM") != "dumb"


def can_show(text: str, stream: TextIO | None = None) -> bool:
    """Return whether the encoding of `stream` has all characters; None means the present stdout."""
    stream = sys.stdout if stream is None else stream
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def width(stream: TextIO | None = None) -> int:
    """Return the present number of columns."""
    stream = sys.stdout if stream is None else stream
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (AttributeError, OSError, ValueError):
        columns = shutil.get_terminal_size((_DEFAULT_COLUMNS, 24)).columns
    return columns or _DEFAULT_COLUMNS


def _environment() -> Mapping[str, str]:
    # These variables describe the terminal, not holodeck, and someone who uses the progress
    # display from Python has no configuration to pass them through.
    return os.environ  # noqa: TID251


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows in columns as wide as their widest cell; the first row is the header."""
    widths = [max(map(columns_of, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell + " " * (width - columns_of(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    )


class ANSIColors:
    """The sequences that switch a colour on, and the sequence that switches it off."""

    GREEN = "\x1b[92m"
    RED = "\x1b[91m"
    YELLOW = "\x1b[93m"
    CYAN = "\x1b[96m"
    RESET = "\x1b[0m"


def colorize(text: str, color: str, force_tty: bool | None = None) -> str:
    """Return `text` in `color`, which is of ANSIColors; plain if stdout shows no colours.

    `force_tty` decides instead of looking at stdout.
    """
    wanted = color_enabled() if force_tty is None else force_tty
    return f"{color}{text}{ANSIColors.RESET}" if wanted else text
