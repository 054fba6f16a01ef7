"""The channel between holodeck and its child processes: the messages, and the child's end of it.

A message is a line, the size of its body in bytes and a JSON list, followed by the body. Agents
in processes of their own write lines of JSON instead (docs/reference/process-protocol.md). The
user's Python may import this module: it needs the standard library of Python 3.9.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from json import dumps, loads  # not as `json.dumps`, which code of the user may replace
from typing import Any, Generic, Protocol, TypeVar

Head = list[Any]
MAX_HEAD = 100_000_000
"""Bytes of the line before a body."""
MAX_BODY = 1_000_000_000
"""Bytes of a body; a process that announces more is broken."""
_CHUNK = 2**18
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class BadMessage(ValueError):
    """A process wrote something else than a message; the text says what."""


def frame(head: Head, body: bytes = b"") -> bytes:
    """Return the bytes of a message."""
    return b"%d %s\n%s" % (len(body), dumps(head).encode(), body)


class Reader(Protocol[T_co]):
    """Takes messages out of the bytes in which they arrive."""

    def feed(self, data: bytes) -> Iterator[T_co]:
        """Yield each message that is complete now. Raises BadMessage."""


class FrameReader:
    """Reads messages with a head and a body.

    Args:
        max_body: Bytes that a body may have.
    """

    def __init__(self, max_body: int = MAX_BODY) -> None:
        self._max_body = max_body
        self._buffer = bytearray()
        self._searched = 0
        """How many bytes are known to hold no end of a head."""
        self._announced: tuple[int, Head] | None = None
        """The size of the body that arrives, and its head; None before the end of a head."""

    def feed(self, data: bytes) -> Iterator[tuple[Head, bytes]]:
        """Yield the head and the body of each message that is complete now. Raises BadMessage."""
        self._buffer += data
        while True:
            if self._announced is None:
                end = self._buffer.find(b"\n", self._searched)
                if end < 0:
                    break
                self._announced = self._parse_head(bytes(self._buffer[:end]))
                del self._buffer[: end + 1]
                self._searched = 0
            size, head = self._announced
            if len(self._buffer) < size:
                return
            body = bytes(self._buffer[:size])
            del self._buffer[:size]
            self._announced = None
            yield head, body
        self._searched = len(self._buffer)
        if len(self._buffer) > MAX_HEAD:
            raise BadMessage(f"the head of a message has more than {MAX_HEAD / 1e6:g} MB")

    def _parse_head(self, line: bytes) -> tuple[int, Head]:
        try:
            size, _, text = line.partition(b" ")
            length, head = int(size), loads(text)
        except (ValueError, RecursionError):
            length, head = 0, None
        if not isinstance(head, list) or not head or not 0 <= length <= self._max_body:
            raise BadMessage(f"no message: {line[:80]!r}")
        return length, head


class LineReader:
    """Reads lines.

    Args:
        max_line: Bytes that a line may have; None for any number.
    """

    def __init__(self, max_line: int | None = None) -> None:
        self._max_line = max_line
        self._line = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each line that is complete now, without its end. Raises BadMessage."""
        first, *others = data.split(b"\n")
        self._line += first
        for start in others:
            self._check()
            yield bytes(self._line)
            self._line = bytearray(start)
        self._check()

    def _check(self) -> None:
        if self._max_line is not None and len(self._line) > self._max_line:
            raise BadMessage(f"a line has more than {self._max_line / 1e6:g} MB")


class Parent(Generic[T]):
    """The process that started this process, at the other end of standard input and output.

    What code of this process reads from there is empty, and what it prints goes to stderr.

    Args:
        reader: Reads the parent's messages.
    """

    def __init__(self, reader: Reader[T]) -> None:
        self._reader = reader
        self._incoming, self._outgoing = os.dup(0), os.dup(1)
        self._lock = threading.Lock()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        os.close(nothing)
        with suppress(AttributeError):
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def receive(self) -> T | None:
        """Wait for the first message and return it; None if the parent has ended."""
        while data := self._read():
            for message in self._reader.feed(data):
                return message
        return None

    def listen(self, handle: Callable[[list[T]], object], on_end: Callable[[], object]) -> None:
        """Pass on further messages, all that arrive together, in a thread.

        The thread also notices that the parent has ended while the event loop is blocked.
        """

        def read() -> None:
            data = b""  # what came with the first message is read already
            while True:
                messages = [*self._reader.feed(data)]
                if messages:
                    handle(messages)
                data = self._read()
                if not data:
                    break
            on_end()

        threading.Thread(target=read, name="holodeck-parent", daemon=True).start()

    def _read(self) -> bytes:
        try:
            return os.read(self._incoming, _CHUNK)
        except ConnectionError:
            return b""

    def write(self, data: bytes) -> None:
        """Write bytes at once; nothing happens if the parent has ended."""
        view = memoryview(data)
        with self._lock, suppress(BrokenPipeError, ConnectionResetError):
            while view:
                view = view[os.write(self._outgoing, view) :]

    def send(self, head: Head, body: bytes = b"") -> None:
        """Send a message at once."""
        self.write(frame(head, body))
