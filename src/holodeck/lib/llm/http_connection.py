"""Pooled HTTP/1.1 connections to one server."""

import asyncio
import base64
import ssl
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from typing import Protocol, cast
from urllib.parse import SplitResult, unquote, urlsplit

from holodeck.lib.llm.http_parser import MalformedHttp, Response, ResponseParser, TooLarge

MAX_IDLE_S = 30.0
"""Load balancers drop idle connections without closing them."""


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


class Receiver(Protocol):
    """Takes the response to one request from a connection."""

    @property
    def has_begun(self) -> bool:
        """Whether any data has arrived."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether it takes nothing more."""
        ...

    def feed(self, data: bytes) -> None:
        """Take what has arrived. Raises MalformedHttp, TooLarge."""
        ...

    def end(self) -> bool:
        """Note that the server sends nothing more, and return whether the response is complete.

        Raises MalformedHttp, TooLarge.
        """
        ...

    def fail(self, error: Exception) -> None:
        """Note why the response will not be complete."""
        ...


class Connection(asyncio.Protocol):
    """One connection, for one request after the other."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def transport(self) -> asyncio.Transport:
        """The transport of a connection that was opened."""
        assert self._transport is not None  # noqa: S101 - as the docstring says
        return self._transport

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a request, whose response goes to the receiver."""
        self._receiver = receiver
        self.transport.write(request)

    def release(self) -> None:
        """Expect no data before the next request."""
        self._receiver = None

    async def exchange(self, request: bytes, parser: ResponseParser) -> Response:
        """Return the response to a request. Raises OSError, MalformedHttp, TooLarge."""
        receiver = _WholeResponse(parser)
        self.send(request, receiver)
        try:
            return await receiver.response
        finally:
            self.release()

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        loop = asyncio.get_running_loop()
        self._transport = await loop.start_tls(self.transport, self, context, server_hostname=host)

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is None or receiver.is_complete:
            self.close()  # data without a request must not become the response to the next one
            return
        try:
            receiver.feed(data)
        except (MalformedHttp, TooLarge) as error:
            self._fail(receiver, error)

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)

    def _end(self, error: Exception | None) -> None:
        receiver = self._receiver
        if receiver is None or receiver.is_complete:
            return
        try:
            if error is None and receiver.end():
                return
        except (MalformedHttp, TooLarge) as refused:
            error = refused
        when = "in the middle of the answer" if receiver.has_begun else "before an answer came"
        closed = ConnectionResetError(f"the connection was closed {when}")
        self._fail(receiver, error or closed)

    def _fail(self, receiver: Receiver, error: Exception) -> None:
        receiver.fail(error)
        self.close()


class _WholeResponse:
    """Waits for a response as a whole."""

    def __init__(self, parser: ResponseParser) -> None:
        self.response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._parser = parser

    @property
    def has_begun(self) -> bool:
        return self._parser.has_begun

    @property
    def is_complete(self) -> bool:
        return self.response.done()

    def feed(self, data: bytes) -> None:
        if self._parser.feed(data):
            self._finish()

    def end(self) -> bool:
        if self._parser.end():
            self._finish()
        return self.is_complete

    def fail(self, error: Exception) -> None:
        if not self.response.done():
            self.response.set_exception(error)

    def _finish(self) -> None:
        assert self._parser.response is not None  # noqa: S101 - it is complete
        self.response.set_result(self._parser.response)


class ConnectionPool:
    """The pool of connections to a server on one event loop."""

    def __init__(self, server: Server, max_bytes: int) -> None:
        self._server = server
        self._max_bytes = max_bytes
        self._idle: list[Connection] = []
        self._context: ssl.SSLContext | None = None

    async def exchange(self, request: bytes) -> Response:
        """Return the response to a request. Raises OSError, MalformedHttp, TooLarge."""
        connection = await self.acquire()
        try:
            response = await connection.exchange(request, ResponseParser(self._max_bytes))
        except BaseException:
            connection.close()
            raise
        self.release(connection, keeps_alive=response.keeps_alive)
        return response

    async def acquire(self) -> Connection:
        """Return a connection for one request. Raises OSError, MalformedHttp."""
        return self._take_idle() or await self._open()

    def release(self, connection: Connection, *, keeps_alive: bool) -> None:
        """Take a connection back after its response."""
        if not keeps_alive:
            connection.close()
            return
        connection.release()
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
        server = self._server
        if server.proxy is not None:
            return await self._open_through_proxy(server, server.proxy)
        host = server.address or server.host
        _, connection = await asyncio.get_running_loop().create_connection(
            Connection,
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
            Connection, parts.hostname or "", parts.port or 80
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
        response = await connection.exchange(
            head.encode(), ResponseParser(self._max_bytes, has_body=False)
        )
        if response.status != 200:
            raise ProxyRefused(f"the proxy answered HTTP {response.status}")
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
