"""A line from a person at the terminal, without holding up the event loop."""

import asyncio
import os
import sys

from holodeck.lib.text import columns_of
from holodeck.lib.threads import run_in_thread
from holodeck.lib.ui.conversation import hold_terminal
from holodeck.lib.ui.live import put
from holodeck.lib.ui.terminal import can_redraw, is_tty, width

_LONGEST_READ = 4096


def missing_terminal() -> str | None:
    """The first of the standard streams that is no terminal; None if a person can be asked."""
    streams = {"stdin": sys.stdin, "stdout": sys.stdout, "stderr": sys.stderr}
    return next((name for name, one in streams.items() if one is None or not is_tty(one)), None)


async def typed_line(prompt: str) -> str | None:
    """What a person types after the prompt; None once there is no more (Ctrl-D).

    Prompt and line are taken off the screen again. Nothing of the terminal is changed, so nothing
    has to be restored when the waiting is cancelled.
    """
    with hold_terminal():
        put(sys.stderr, prompt)
        line = await _line()
        if line is None:
            put(sys.stderr, "\n")
        elif can_redraw(sys.stderr):
            put(sys.stderr, _way_back(prompt + line))
    return line


def _way_back(shown: str) -> str:
    """To where a line began that was ended with Enter, and clear."""
    rows = max(1, -(-columns_of(shown) // width(sys.stderr)))
    return f"\x1b[{rows}A\r\x1b[J"


async def _line() -> str | None:
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
