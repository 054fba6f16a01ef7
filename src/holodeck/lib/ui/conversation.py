"""A conversation for people, on stderr: who said what, coloured, and folded where it is long."""

import asyncio
import json
import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass

from holodeck.lib.text import abridged, clip, columns_of, one_line, printable
from holodeck.lib.threads import run_in_thread
from holodeck.lib.ui.live import active_live_line, write_text
from holodeck.lib.ui.terminal import ANSIColors, can_redraw, color_enabled, colorize, is_tty, width

FOLDED = 5
"""So many lines of data are shown."""
MOST = 8_000
"""Characters of one text that are shown."""
LONGEST_NAME = 60
INDENT = "  "
_WORD = re.compile(r"\s*\S+")
_terminal = threading.RLock()


@dataclass(frozen=True)
class DisplayedMessage:
    """Something to be shown, and who it is from."""

    who: str
    text: str
    colour: str
    is_data: bool = False
    """Whether a few lines of it are enough, whatever it is; JSON always is."""


@contextmanager
def hold_terminal() -> Iterator[None]:
    """Nothing else of a conversation is shown meanwhile, and no line keeps changing."""
    live = active_live_line()
    with _terminal, live.paused() if live is not None else nullcontext():
        yield


def show_messages(said: Sequence[DisplayedMessage], name: str = "", *, gap: bool = False) -> None:
    """Write what was said to stderr, at once; lines begin with a name if there is one.

    With a gap, the line before is ended first, whoever wrote it.
    A stream that is closed, or that nobody reads any more, is no reason to lose a run.
    """
    stream = sys.stderr
    if stream is None:
        return
    is_coloured = color_enabled(stream)
    prefix = f"[{one_line(name, LONGEST_NAME)}] " if name else ""
    columns = max(width(stream) - columns_of(prefix), 20) if is_tty(stream) else None
    start = colorize(prefix, ANSIColors.YELLOW, is_coloured) if prefix else ""
    lines = [line for one in said for line in _colored_lines(one, columns, is_coloured)]
    with hold_terminal(), suppress(ValueError):  # the stream is closed
        write_text(stream, "\n" * gap + "".join(f"{start}{line}\n" for line in lines))


def _colored_lines(said: DisplayedMessage, columns: int | None, is_coloured: bool) -> Iterator[str]:
    first, *others = render_lines(said, columns)
    who = _head(said)
    yield colorize(who, said.colour, is_coloured) + first[len(who) :]
    yield from others


def render_lines(said: DisplayedMessage, columns: int | None) -> list[str]:
    """The lines for something, without colours; for a log (None) as long as they are."""
    head, data = _head(said), _as_data(said)
    if data is None:
        rows = f"{head} {printable(abridged(said.text, MOST))}".split("\n")
        return [part for at, row in enumerate(rows) for part in _wrapped(row, columns, at > 0)]
    if len(data) == 1 and (columns is None or columns_of(f"{head} {data[0]}") <= columns):
        return [f"{head} {data[0]}"]
    room = (MOST if columns is None else columns) - len(INDENT)
    kept = [INDENT + clip(line, room) for line in data[:FOLDED]]
    more = len(data) - FOLDED
    return [head, *kept, *([f"{INDENT}… {more} more lines"] if more > 0 else [])]


def _head(said: DisplayedMessage) -> str:
    return one_line(said.who, LONGEST_NAME) + ":"


def _as_data(said: DisplayedMessage) -> list[str] | None:
    """The lines of JSON, laid out, or of other data; None for a text that is to be read."""
    text = said.text.strip()
    try:
        value = json.loads(text) if text[:1] in {"{", "["} else None
    except (ValueError, RecursionError):
        value = None
    if value:
        short = json.dumps(value, ensure_ascii=False)
        text = (
            short if len(short) <= LONGEST_NAME else json.dumps(value, ensure_ascii=False, indent=2)
        )
    elif not said.is_data:
        return None
    return [printable(line, keep_newlines=False) for line in text.split("\n")]


def _wrapped(row: str, columns: int | None, is_indented: bool) -> Iterator[str]:
    """A row in lines that fit, broken between words; a word that is too long stays whole."""
    line = INDENT if is_indented else ""
    if columns is None:
        yield line + row
        return
    for word in _WORD.findall(row):
        if line.strip() and columns_of(line + word) > columns:
            yield line
            line = INDENT + word.lstrip()
        else:
            line += word
    yield line


_LONGEST_READ = 4096


def find_missing_terminal() -> str | None:
    """The first of the standard streams that is no terminal; None if a person can be asked."""
    streams = {"stdin": sys.stdin, "stdout": sys.stdout, "stderr": sys.stderr}
    return next((name for name, one in streams.items() if one is None or not is_tty(one)), None)


async def read_typed_line(prompt: str) -> str | None:
    """What a person types after the prompt; None once there is no more (Ctrl-D).

    Prompt and line are taken off the screen again. Nothing of the terminal is changed, so nothing
    has to be restored when the waiting is cancelled.
    """
    with hold_terminal():
        write_text(sys.stderr, prompt)
        line = await _read_line()
        if line is None:
            write_text(sys.stderr, "\n")
        elif can_redraw(sys.stderr):
            write_text(sys.stderr, _move_back(prompt + line))
    return line


def _move_back(shown: str) -> str:
    """To where a line began that was ended with Enter, and clear."""
    rows = max(1, -(-columns_of(shown) // width(sys.stderr)))
    return f"\x1b[{rows}A\r\x1b[J"


async def _read_line() -> str | None:
    if sys.platform == "win32":  # whose loops cannot watch a terminal
        return _without_end((await run_in_thread(sys.stdin.readline)).encode())
    loop, file = asyncio.get_running_loop(), sys.stdin.fileno()
    read = b""
    while not read.endswith(b"\n"):
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(file, _settle, ready)
        try:
            await ready
        finally:
            loop.remove_reader(file)
        # The terminal hands out whole lines, so this never waits.
        more = os.read(file, _LONGEST_READ)
        if not more:
            break
        read += more
    return _without_end(read)


def _settle(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


def _without_end(read: bytes) -> str | None:
    return read.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\r\n") if read else None
