"""Shows a conversation on stderr, coloured and with long data folded; reads typed lines."""

import asyncio
import json
import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from holodeck.lib.support.text import clip, columns_of, one_line, printable, shorten_middle
from holodeck.lib.ui.live import live_line_hidden, write_raw, write_text
from holodeck.lib.ui.terminal import ANSIColors, can_redraw, color_enabled, colorize, is_tty, width

_MAX_DATA_LINES = 5
_MAX_TEXT = 8_000
_MAX_NAME = 60
_MIN_COLUMNS = 20
_MAX_READ = 4096
_INDENT = "  "
_WORD = re.compile(r"\s*\S+")
_terminal = threading.RLock()


@dataclass(frozen=True)
class Entry:
    """What to show of a conversation, and who or what it is from."""

    sender: str
    text: str
    color: str
    is_data: bool = False
    """Whether to show only its first lines; JSON is always data."""

    @property
    def head(self) -> str:
        return one_line(self.sender, _MAX_NAME) + ":"


@contextmanager
def hold_terminal() -> Iterator[None]:
    """Let no other message and no live line write to the terminal meanwhile."""
    with _terminal, live_line_hidden():
        yield


def show_entries(entries: Sequence[Entry], name: str = "", *, gap: bool = False) -> None:
    """Write entries to stderr; each line begins with the name unless it is empty.

    With `gap`, end the present line of the terminal first. A closed stream is ignored.
    """
    stream = sys.stderr
    if stream is None:
        return
    is_colored = color_enabled(stream)
    prefix = f"[{one_line(name, _MAX_NAME)}] " if name else ""
    columns = None
    if is_tty(stream):
        columns = max(width(stream) - columns_of(prefix), _MIN_COLUMNS)
    start = colorize(prefix, ANSIColors.YELLOW, is_colored) if prefix else ""
    lines = []
    for entry in entries:
        first, *others = render_lines(entry, columns)
        head = colorize(entry.head, entry.color, is_colored)
        lines += [head + first[len(entry.head) :], *others]
    with hold_terminal(), suppress(ValueError):  # the stream is closed
        write_text(stream, "\n" * gap + "".join(f"{start}{line}\n" for line in lines))


def render_lines(entry: Entry, columns: int | None) -> list[str]:
    """Return the lines of an entry without colours; `columns` None does not break them."""
    head, data = entry.head, _data_lines(entry)
    if data is None:
        rows = f"{head} {printable(shorten_middle(entry.text, _MAX_TEXT))}".split("\n")
        return [line for at, row in enumerate(rows) for line in _wrap(row, columns, at > 0)]
    if len(data) == 1 and (columns is None or columns_of(f"{head} {data[0]}") <= columns):
        return [f"{head} {data[0]}"]
    room = (_MAX_TEXT if columns is None else columns) - len(_INDENT)
    shown = [_INDENT + clip(line, room) for line in data[:_MAX_DATA_LINES]]
    hidden = len(data) - _MAX_DATA_LINES
    return [head, *shown, *([f"{_INDENT}… {hidden} more lines"] if hidden > 0 else [])]


def _data_lines(entry: Entry) -> list[str] | None:
    """Return the lines of formatted JSON, or of other data; None for prose."""
    text = entry.text.strip()
    try:
        value = json.loads(text) if text[:1] in {"{", "["} else None
    except (ValueError, RecursionError):
        value = None
    if value:
        text = json.dumps(value, ensure_ascii=False)
        if len(text) > _MAX_NAME:
            text = json.dumps(value, ensure_ascii=False, indent=2)
    elif not entry.is_data:
        return None
    return [printable(line, keep_newlines=False) for line in text.split("\n")]


def _wrap(row: str, columns: int | None, is_indented: bool) -> Iterator[str]:
    """Break a row between words into lines that fit; a word that is too long stays whole."""
    line = _INDENT if is_indented else ""
    if columns is None:
        yield line + row
        return
    for word in _WORD.findall(row):
        if line.strip() and columns_of(line + word) > columns:
            yield line
            line = _INDENT + word.lstrip()
        else:
            line += word
    yield line


def find_missing_terminal() -> str | None:
    """Return the first standard stream that is not a terminal; None if a person can type."""
    streams = {"stdin": sys.stdin, "stdout": sys.stdout, "stderr": sys.stderr}
    return next(
        (name for name, stream in streams.items() if stream is None or not is_tty(stream)), None
    )


async def read_typed_line(prompt: str) -> str | None:
    """Return the line typed after the prompt; None at the end of input (Ctrl-D).

    Prompt and line are removed from the screen again. No setting of the terminal changes, so
    cancellation has nothing to restore.
    """
    with hold_terminal():
        write_text(sys.stderr, prompt)
        line = await _read_line()
        if line is None:
            write_text(sys.stderr, "\n")
        elif can_redraw(sys.stderr):
            rows = max(1, -(-columns_of(prompt + line) // width(sys.stderr)))
            write_raw(sys.stderr, f"\x1b[{rows}A\r\x1b[J")
    return line


async def _read_line() -> str | None:
    loop, file = asyncio.get_running_loop(), sys.stdin.fileno()
    data = b""
    while not data.endswith(b"\n"):
        ready = asyncio.Event()
        loop.add_reader(file, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(file)
        more = os.read(file, _MAX_READ)  # never blocks: a terminal provides whole lines
        if not more:
            break
        data += more
    return data.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\r\n") if data else None
