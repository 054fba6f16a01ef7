"""HTTP client for our own requests: pooled HTTP/1.1 connections to one server."""

import asyncio
import base64
import ssl
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from typing import cast
from urllib.parse import SplitResult, unquote, urlsplit
from weakref import WeakKeyDictionary

from holodeck.lib.llm.errors import (
    MAX_MESSAGE,
    RequestError,
    malformed_response,
    no_connection_message,
    unreachable_reason,
)
from holodeck.lib.llm.http_parser import MalformedHttp, Response, ResponseParser, TooLarge
from holodeck.lib.text import one_line

MAX_IDLE_S = 30.0
"""Load balancers drop idle connections without closing them."""


class ProxyRefused(ConnectionError):
    """The proxy refuses to connect to the server."""


@dataclass(frozen=True)
class Server:
    """The URL that requests go to, and the proxy on the way."""

    url: str
    proxy: str | None = None

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


class Connection(asyncio.Protocol):
    """One connection, for one request after the other."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._parser: ResponseParser | None = None
        self._response: asyncio.Future[Response] | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes, parser: ResponseParser) -> Response:
        """Return the response to a request. Raises OSError, MalformedHttp, TooLarge."""
        assert self._transport is not None  # noqa: S101 - set when it was opened
        self._parser = parser
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._response
        finally:
            self._response = None

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        assert self._transport is not None  # noqa: S101 - set when it was opened
        loop = asyncio.get_running_loop()
        self._transport = await loop.start_tls(self._transport, self, context, server_hostname=host)

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        response, parser = self._response, self._parser
        if response is None or response.done() or parser is None:
            self.close()  # data without a request must not become the response to the next one
            return
        try:
            is_complete = parser.feed(data)
        except (MalformedHttp, TooLarge) as error:
            self._fail(error)
            return
        if is_complete and parser.response is not None:
            response.set_result(parser.response)

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)

    def _end(self, error: Exception | None) -> None:
        response, parser = self._response, self._parser
        if response is None or response.done() or parser is None:
            return
        if error is None and parser.end() and parser.response is not None:
            response.set_result(parser.response)
            return
        when = "in the middle of the answer" if parser.has_begun else "before an answer came"
        self._fail(error or ConnectionResetError(f"the connection was closed {when}"))

    def _fail(self, error: Exception) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(error)
        self.close()


class ConnectionPool:
    """The pool of connections to a server on one event loop."""

    def __init__(self, server: Server, max_bytes: int) -> None:
        self._server = server
        self._max_bytes = max_bytes
        self._idle: list[Connection] = []
        self._context: ssl.SSLContext | None = None

    async def exchange(self, request: bytes) -> Response:
        """Return the response to a request. Raises OSError, MalformedHttp, TooLarge."""
        connection = self._take_idle() or await self._open()
        try:
            response = await connection.exchange(request, ResponseParser(self._max_bytes))
        except BaseException:
            connection.close()
            raise
        if response.keeps_alive:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.close()
        return response

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
        _, connection = await asyncio.get_running_loop().create_connection(
            Connection,
            server.host,
            server.port,
            ssl=self._tls() if server.is_secure else None,
            # With a single address, racing costs time, and leaks a socket when cancelled.
            happy_eyeballs_delay=None if _is_address(server.host) else 0.25,
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
    parts = urlsplit(proxy)
    if parts.username is None:
        return ""
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Proxy-Authorization: Basic {base64.b64encode(credentials.encode()).decode()}\r\n"


def _is_address(host: str) -> bool:
    """Whether the host is an IP address and not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class HttpClient:
    """POSTs JSON to one server, over a pool of connections per event loop.

    Args:
        server: The URL and the proxy.
        headers: Headers of every request, besides those that every HTTP client sends.
        max_bytes: The largest response body; reading ends there.
        timeout: Seconds for one request; None for no limit.
    """

    def __init__(
        self, server: Server, headers: Mapping[str, str], max_bytes: int, timeout: float | None
    ) -> None:
        self._server = server
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._head = _request_head(server, headers)
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, ConnectionPool] = (
            WeakKeyDictionary()
        )

    def encode(self, body: bytes) -> bytes:
        """Return the whole request with that body."""
        return self._head + b"Content-Length: %d\r\n\r\n" % len(body) + body

    async def send(self, request: bytes) -> Response:
        """Send a request and return the response, whatever its status. Raises RequestError."""
        # Each asyncio.timeout costs a little, even one without a limit.
        limit = nullcontext() if self._timeout is None else asyncio.timeout(self._timeout)
        try:
            async with limit:
                return await self._pool().exchange(request)
        except TooLarge as error:
            raise RequestError(str(error)) from error
        except MalformedHttp as error:
            raise malformed_response(f"is not valid HTTP: {error}") from error
        except TimeoutError as error:
            raise RequestError("no answer in time", is_transient=True) from error
        except OSError as error:
            raise connection_error(error, self._server) from error

    async def close(self) -> None:
        """Close the connections of the running event loop; a later request opens new ones."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    def _pool(self) -> ConnectionPool:
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            self._pools[loop] = ConnectionPool(self._server, self._max_bytes)
        return self._pools[loop]


def _request_head(server: Server, headers: Mapping[str, str]) -> bytes:
    """Return the request line and the headers that all requests have in common."""
    defaults = {"Host": server.authority, "Content-Type": "application/json"}
    defaults |= {"Accept-Encoding": "identity", "User-Agent": "holodeck", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in defaults.items())
    if server.proxy is not None and not server.is_secure:
        lines += proxy_header(server.proxy)
    return f"POST {server.target} HTTP/1.1\r\n{lines}".encode()


def connection_error(error: OSError, server: Server) -> RequestError:
    """Return the error for a connection that could not be made or was lost."""
    if isinstance(error, ssl.SSLCertVerificationError):
        problem = f"its certificate is not trusted: {error.verify_message}"
        return RequestError(f"{server.authority}: {problem}")
    unreachable = unreachable_reason(error)
    reason = unreachable or one_line(str(error), MAX_MESSAGE) or type(error).__name__
    return RequestError(
        no_connection_message(server.contact, reason),
        is_transient=True,
        is_unreachable=unreachable is not None,
    )
