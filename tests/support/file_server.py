"""A server on loopback whose answers are written byte by byte, to be as rude as a test needs."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

Talk = bytes | Callable[[dict[str, str], asyncio.StreamWriter], Awaitable[None]]
"""What is sent, or what writes the answer to a request with these headers."""


def answer(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """Return a whole response; `_` in the name of a header stands for `-`."""
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{''.join(lines)}\r\n"
    return head.encode() + body


@dataclass
class FileServer:
    """Serves `pages`, each by its path; a context manager that runs in a thread of its own."""

    pages: dict[str, Talk | list[Talk]] = field(default_factory=dict)
    """A list is answered one after the other, its last item again and again."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Targets and headers (names in lower case) so far."""
    port: int = 0

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        return f"http://{self.host}{path}"

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main(started)), daemon=True
        )
        self._thread.start()
        started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _main(self, started: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._talks: set[asyncio.Task[None] | None] = set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self._stop.wait()
        server.close()
        talks = [one for one in self._talks if one is not None]
        for one in talks:
            one.cancel()
        await asyncio.gather(*talks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._talks.add(asyncio.current_task())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): text for name, text in (one.split(": ", 1) for one in lines)}
            target = first.split(" ")[1]
            self.requests.append((target, headers))
            await self._talk(self._next(target), headers, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()
            self._talks.discard(asyncio.current_task())

    def _next(self, target: str) -> Talk:
        page = self.pages.get(target.partition("?")[0], answer(status="404 Not Found"))
        if isinstance(page, list):
            return page.pop(0) if len(page) > 1 else page[0]
        return page

    async def _talk(
        self, talk: Talk, headers: dict[str, str], writer: asyncio.StreamWriter
    ) -> None:
        if isinstance(talk, bytes):
            writer.write(talk)
        else:
            await talk(headers, writer)
        await writer.drain()
        writer.write_eof()


async def endless(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
    """Send a body that does not end."""
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def drip(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
    """Send a header and then nothing more, with the connection kept open."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx")
    await asyncio.Event().wait()


async def trickle(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
    """Send a byte now and then, without end."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)
