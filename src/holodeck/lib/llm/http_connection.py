"""Pooled HTTP/1.1 connections to a server; h11 reads the responses."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from ipaddress import ip_address
from typing import cast
from urllib.parse import SplitResult, unquote, urlsplit

import h11

from holodeck.lib.llm.http_body import MalformedHttp, TooLarge, decode_body, too_large
from holodeck.lib.support.text import one_line

MAX_IDLE_S = 30.0
"""Load balancers drop idle connections without closing them."""
MAX_HEAD_BYTES = 64_000
"""Of a head, of the trailers, and of the line before a chunk."""
BUFFER_BYTES = 65_536
MAX_WAITING_BYTES = 256_000
"""Of what a server may send before its response is read."""


class ProxyRefused(ConnectionError):
    """The proxy refuses to connect to the server."""


@dataclass(frozen=True)
class Server:
    """The URL that requests go to, and the proxy or the address on the way."""

    url: str
    proxy: str | None = None
    address: str | None = None
    """The IP address to connect to, if it is not to be looked up; not for a proxy."""

    @cached_property
    def parts(self) -> SplitResult:
        return urlsplit(self.url)

    @property
    def host(self) -> str:
        return self.parts.hostname or ""

    @property
    def port(self) -> int:
        return self.parts.port or (443 if self.is_secure else 80)

    @property
    def is_secure(self) -> bool:
        return self.parts.scheme == "https"

    @property
    def authority(self) -> str:
        """Host and port, as in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.parts.port}" if self.parts.port else host

    @property
    def contact(self) -> str:
        """The address to connect to, the proxy's if there is one, without path and secrets."""
        if self.proxy is None:
            return f"{self.parts.scheme}://{self.authority}"
        parts = urlsplit(self.proxy)
        return f"the proxy {parts.scheme}://{parts.hostname}:{parts.port or 80}"

    @property
    def target(self) -> str:
        """The target in the first line of a request: for a plain proxy, the whole URL."""
        path = self.parts.path or "/"
        path += f"?{self.parts.query}" if self.parts.query else ""
        return f"http://{self.authority}{path}" if self.proxy and not self.is_secure else path

    def begin_request(self, method: str) -> str:
        """Return the first lines of a request, with the credentials for a plain proxy."""
        lines = f"{method} {self.target} HTTP/1.1\r\nHost: {self.authority}\r\n"
        if self.proxy is not None and not self.is_secure:
            lines += proxy_header(self.proxy)
        return lines


@dataclass(frozen=True)
class Head:
    """The head of a response."""

    status: int
    headers: dict[str, str]
    """Names in lower case; of several headers of a name, the last one."""
    event: h11.Response
    """The head as h11 read it: with the reason, and all headers in their order."""


@dataclass(frozen=True)
class Response:
    """A complete response."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


_REQUESTS = {
    method: h11.Request(method=method, target="/", headers=[("Host", "")])
    for method in ("POST", "HEAD", "CONNECT")
}
"""Requests as h11 tells their responses apart: by the method, and only these three differ."""


class ResponseReader:
    """Reads a response, fed with bytes as they arrive, and gives its body piece by piece.

    Args:
        max_bytes: The largest body; more raises TooLarge.
        method: The method of the request.
    """

    def __init__(self, max_bytes: int, method: str = "POST") -> None:
        self.head: Head | None = None
        self.has_begun = False
        """Whether any data has arrived."""
        self.is_complete = False
        self._max_bytes = max_bytes
        self._method = method
        self._size = 0
        """Bytes of the body so far."""
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        # The request itself is written without h11, since most of it is the same each time.
        self._http.send(_REQUESTS.get(method, _REQUESTS["POST"]))

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection may be used again, once the response is complete."""
        return self._http.their_state is h11.DONE and self._http.trailing_data == (b"", False)

    def feed(self, data: bytes) -> bytes:
        """Return the next piece of the body, "" if the data holds none.

        A coding of the content is not decoded. Raises MalformedHttp, TooLarge.
        """
        self.has_begun = True
        return self._read(data)

    def end(self) -> bool:
        """Note the end of the data, and return whether the response is complete."""
        with suppress(MalformedHttp):
            self._read(b"")
        return self.is_complete

    def _read(self, data: bytes) -> bytes:
        body = bytearray()
        try:
            self._http.receive_data(data)
            while not self.is_complete:
                match self._http.next_event():
                    case h11.Data(data=piece):
                        self._check_size(self._size + len(piece))
                        self._size += len(piece)
                        body += piece
                    case h11.Response() as event:
                        self._begin(event)
                    case h11.EndOfMessage() | h11.PAUSED:  # paused: a proxy has connected
                        self.is_complete = True
                    case h11.NEED_DATA | h11.ConnectionClosed():
                        break
        except h11.RemoteProtocolError as error:
            raise MalformedHttp(one_line(str(error), 100)) from error
        return bytes(body)

    def _begin(self, event: h11.Response) -> None:
        names = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers)
        self.head = head = Head(event.status_code, dict(names), event)
        if self._method != "HEAD" and head.status not in {204, 304}:
            self._check_size(int(head.headers.get("content-length", 0)))

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise TooLarge(too_large(self._max_bytes))


class Connection(asyncio.BufferedProtocol):
    """One connection, for one request after the other.

    The server has to wait while too much of a response has not been taken.
    """

    def __init__(self, pool: "ConnectionPool") -> None:
        self.idle_since = 0.0
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._reader: ResponseReader | None = None
        """Reads the response to the current request; None without one."""
        self._waiting = bytearray()
        """What has arrived of the body and was not taken."""
        self._error: Exception | None = None
        self._change: asyncio.Future[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def transport(self) -> asyncio.Transport:
        """The transport of a connection that was opened."""
        assert self._transport is not None  # noqa: S101 - as the docstring says
        return self._transport

    @property
    def reader(self) -> ResponseReader:
        """What reads the response to the current request."""
        assert self._reader is not None  # noqa: S101 - as the docstring says
        return self._reader

    @property
    def head(self) -> Head:
        """The head of the response that has begun."""
        assert self.reader.head is not None  # noqa: S101 - as the docstring says
        return self.reader.head

    async def begin(self, request: bytes, reader: ResponseReader) -> None:
        """Send a request, and return once the head of its response has come.

        Raises OSError, MalformedHttp, TooLarge; then the connection is closed.
        """
        self._reader = reader
        try:
            self.transport.write(request)
            while reader.head is None:
                await self._wait()
        except BaseException:
            self.close()
            raise

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, not decoded. Raises OSError, MalformedHttp, TooLarge."""
        while self._waiting or not self.reader.is_complete:
            if not self._waiting:
                await self._wait()
                continue
            piece = bytes(self._waiting)
            self._waiting.clear()
            self.transport.resume_reading()
            yield piece

    def finish(self) -> None:
        """Let the connection be used again if the whole response was taken; else close it."""
        reader, self._reader = self.reader, None
        if reader.is_complete and reader.keeps_alive and not self._waiting:
            self._pool.keep(self)
        else:
            self.close()

    async def _wait(self) -> None:
        """Wait until something arrives. Raises what the connection failed with."""
        if self._error is None:
            self._change = asyncio.get_running_loop().create_future()
            await self._change
        if self._error is not None:
            raise self._error

    def _wake(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        loop = asyncio.get_running_loop()
        self._transport = await loop.start_tls(self.transport, self, context, server_hostname=host)

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - it is large enough
        return self._pool.buffer

    def buffer_updated(self, nbytes: int) -> None:
        data, reader = bytes(self._pool.buffer[:nbytes]), self._reader
        if reader is None or reader.is_complete:
            self.close()  # data without a request must not become the response to the next one
            return
        try:
            self._waiting += reader.feed(data)
        except (MalformedHttp, TooLarge) as error:
            self._fail(error)
        if len(self._waiting) > MAX_WAITING_BYTES:
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)

    def _end(self, error: Exception | None) -> None:
        reader = self._reader
        if reader is None or reader.is_complete or self._error is not None:
            return
        if error is None and reader.end():
            self._wake()
            return
        when = "in the middle of the answer" if reader.has_begun else "before an answer came"
        self._fail(error or ConnectionResetError(f"the connection was closed {when}"))

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._wake()
        self.close()


class ConnectionPool:
    """The pool of connections to a server on an event loop."""

    def __init__(self, server: Server, max_bytes: int) -> None:
        self.server = server
        self._max_bytes = max_bytes
        # one for all connections, as allocating a buffer for each read takes longer than reading
        self.buffer = memoryview(bytearray(BUFFER_BYTES))
        self._idle: list[Connection] = []
        self._context: ssl.SSLContext | None = None

    async def exchange(self, request: bytes) -> Response:
        """Return the response to a request, decoded. Raises OSError, MalformedHttp, TooLarge."""
        connection = await self.begin(request, ResponseReader(self._max_bytes))
        head = connection.head
        try:
            body = b"".join([piece async for piece in connection.pieces()])
        finally:
            connection.finish()
        coding = head.headers.get("content-encoding")
        return Response(head.status, head.headers, decode_body(body, coding, self._max_bytes))

    async def begin(self, request: bytes, reader: ResponseReader) -> Connection:
        """Return a connection with the beginning of the response; `finish` it.

        Raises OSError, MalformedHttp, TooLarge.
        """
        connection = self._take_idle() or await self._open()
        await connection.begin(request, reader)
        return connection

    def keep(self, connection: Connection) -> None:
        """Take a connection back after its response."""
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)

    async def close(self) -> None:
        """Close idle connections; one in use closes when its request is cancelled."""
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # transports close in the next iteration of the loop

    def _take_idle(self) -> Connection | None:
        """Return the connection used last that is still usable."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now - connection.idle_since < MAX_IDLE_S:
                return connection
            connection.close()
        return None

    async def _open(self) -> Connection:
        server = self.server
        if server.proxy is not None:
            return await self._open_through_proxy(server, server.proxy)
        host = server.address or server.host
        _, connection = await asyncio.get_running_loop().create_connection(
            partial(Connection, self),
            host,
            server.port,
            ssl=self._tls() if server.is_secure else None,
            server_hostname=server.host if server.is_secure else None,
            # With a single address, racing costs time, and leaks a socket when cancelled.
            happy_eyeballs_delay=None if _is_address(host) else 0.25,
        )
        return connection

    async def _open_through_proxy(self, server: Server, proxy: str) -> Connection:
        parts = urlsplit(proxy)
        _, connection = await asyncio.get_running_loop().create_connection(
            partial(Connection, self), parts.hostname or "", parts.port or 80
        )
        if not server.is_secure:
            return connection
        try:
            await self._tunnel(connection, server, proxy)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _tunnel(self, connection: Connection, server: Server, proxy: str) -> None:
        target = f"{server.host}:{server.port}"
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{proxy_header(proxy)}\r\n"
        await connection.begin(head.encode(), ResponseReader(self._max_bytes, "CONNECT"))
        if connection.head.status != 200:
            raise ProxyRefused(f"the proxy answered HTTP {connection.head.status}")
        await connection.start_tls(self._tls(), server.host)

    def _tls(self) -> ssl.SSLContext:
        """Return the pool's TLS context; loading the certificates is slow."""
        if self._context is None:
            self._context = ssl.create_default_context()
        return self._context


def proxy_header(proxy: str) -> str:
    """Return the header line with the credentials in a proxy's URL, "" without any."""
    credentials = basic_credentials(urlsplit(proxy))
    return f"Proxy-Authorization: {credentials}\r\n" if credentials else ""


def basic_credentials(parts: SplitResult) -> str | None:
    """Return the credentials in a URL as the value of a header; None without any."""
    if parts.username is None:
        return None
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"


def _is_address(host: str) -> bool:
    """Whether the host is an IP address and not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
