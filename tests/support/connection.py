"""HTTP/1.1 on one socket: reads requests, writes answers, and goes wrong on demand."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote, urlsplit

from support.wire_types import Reply


@dataclass(frozen=True)
class Message:
    """One HTTP request, not yet understood."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What to send for a reply: its content type and its body, in parts when it streams."""

    reply: Reply
    content_type: str
    parts: list[bytes]
    streams: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)


class Hangup(Exception):
    """The connection is over and nothing more is to be said on it."""


Serve = Callable[["Connection", Message], Awaitable[None]]


def read_message(buffer: bytearray) -> Message | None:
    """The first whole request in the buffer, taken out of it; None when it is not all there."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    first, *lines = buffer[:end].decode("latin-1").split("\r\n")
    pairs = (line.split(":", 1) for line in lines)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    found = read_body(buffer, end + 4, headers)
    if found is None:
        return None
    body, stop = found
    del buffer[:stop]
    method, target, _ = first.split(" ", 2)
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return Message(method, unquote(parts.path), query, headers, body)


def read_body(
    buffer: bytearray, start: int, headers: Mapping[str, str]
) -> tuple[bytes, int] | None:
    """The body and where it stops; None when it is not all there."""
    if "chunked" in headers.get("transfer-encoding", ""):
        return read_chunks(buffer, start)
    stop = start + int(headers.get("content-length", "0"))
    return (bytes(buffer[start:stop]), stop) if len(buffer) >= stop else None


def read_chunks(buffer: bytearray, at: int) -> tuple[bytes, int] | None:
    body = b""
    while (line_end := buffer.find(b"\r\n", at)) >= 0:
        size = int(buffer[at:line_end].split(b";")[0], 16)
        at = line_end + 2 + size + 2
        if len(buffer) < at:
            return None
        if size == 0:
            return body, at
        body += buffer[line_end + 2 : at - 2]
    return None


class Connection(asyncio.Protocol):
    """One client. When it leaves, the request being served for it is cancelled."""

    transport: asyncio.Transport

    def __init__(self, serve: Serve, connections: set["Connection"]) -> None:
        self._serve = serve
        self._connections = connections
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._task is not None:
            self._task.cancel()

    def _next(self) -> None:
        """Serve the next request that is all there, one at a time."""
        if self._task is not None or self.transport.is_closing():
            return
        if (message := read_message(self._buffer)) is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(message))

    async def _run(self, message: Message) -> None:
        try:
            await self._serve(self, message)
        except Hangup:
            self.transport.close()
        finally:
            self._task = None
        self._next()

    async def send(self, answer: Answer) -> None:
        """Write the answer, or go wrong the way its reply says."""
        match answer.reply.fault:
            case "reset":
                self._reset()
            case "close":
                raise Hangup
            case "hang":
                await forever()
            case _:
                await self._write(answer)

    async def _write(self, answer: Answer) -> None:
        reply = answer.reply
        if reply.fault == "cut_chunk":
            self.transport.write(head(replace(answer, streams=True)))
            self.transport.write(f"{len(answer.body):x}\r\n".encode() + answer.body[:-10])
            raise Hangup
        sent = encoded(answer)
        self.transport.write(head(answer))
        if reply.fault == "drip":
            for byte in sent:
                self.transport.write(bytes([byte]))
                await asyncio.sleep(reply.drip_s)
            return
        if reply.fault in {"truncate", "half_open"}:
            self.transport.write(sent[: len(sent) // 2])
            if reply.fault == "half_open":
                await forever()
            raise Hangup
        self.transport.write(sent)

    def _reset(self) -> None:
        """Closing with a linger of zero makes the kernel send RST instead of FIN."""
        sock: socket.socket = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
        raise Hangup


async def forever() -> None:
    """Wait until the client leaves or the server stops."""
    await asyncio.get_running_loop().create_future()


def encoded(answer: Answer) -> bytes:
    """The body as it goes over the wire: streams are chunked, one chunk a part."""
    if not answer.streams:
        return answer.body
    chunks = [f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in answer.parts if part]
    return b"".join(chunks) + b"0\r\n\r\n"


def head(answer: Answer) -> bytes:
    status = answer.reply.status
    phrase = HTTPStatus(status).phrase if status in {s.value for s in HTTPStatus} else "Unknown"
    length = {"content-length": str(len(answer.body))}
    framing = {"transfer-encoding": "chunked"} if answer.streams else length
    given = {name.lower(): value for name, value in answer.reply.headers.items()}
    headers = {"content-type": answer.content_type} | framing | given
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{n}: {v}" for n, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
