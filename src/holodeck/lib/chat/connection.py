"""Connections to one server: opened when needed, used again while they are good."""

import asyncio
import base64
import ssl
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from typing import cast
from urllib.parse import SplitResult, unquote, urlsplit

from holodeck.lib.chat.http import MalformedHttp, Response, ResponseParser, TooLarge

LONGEST_IDLE_S = 30.0
"""Balancers forget quiet connections without a word."""


class ProxyRefused(ConnectionError):
    """The proxy does not let us through."""


@dataclass(frozen=True)
class Server:
    """Where requests go."""

    url: str
    proxy: str | None = None

    @cached_property
    def parts(self) -> SplitResult:
        """The URL in its parts."""
        return urlsplit(self.url)

    @property
    def host(self) -> str:
        """The name to connect to."""
        return self.parts.hostname or ""

    @property
    def port(self) -> int:
        """The port to connect to."""
        return self.parts.port or (443 if self.is_secure else 80)

    @property
    def is_secure(self) -> bool:
        """Whether it speaks TLS."""
        return self.parts.scheme == "https"

    @property
    def authority(self) -> str:
        """Host and port, as the Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.parts.port}" if self.parts.port else host

    @property
    def contact(self) -> str:
        """The URL to connect to, without path and secrets: the proxy's, where there is one."""
        if self.proxy is None:
            return f"{self.parts.scheme}://{self.authority}"
        parts = urlsplit(self.proxy)
        return f"the proxy {parts.scheme}://{parts.hostname}:{parts.port or 80}"

    @property
    def target(self) -> str:
        """What the first line of a request names: a proxy wants to know the server, too."""
        path = self.parts.path or "/"
        path += f"?{self.parts.query}" if self.parts.query else ""
        return f"http://{self.authority}{path}" if self.proxy and not self.is_secure else path


class Connection(asyncio.Protocol):
    """One connection, for one exchange after the other."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._reading: ResponseParser | None = None
        self._waiting: asyncio.Future[Response] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it may be used."""
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes, reading: ResponseParser) -> Response:
        """The answer to a request. Raises OSError, MalformedHttp, TooLarge."""
        assert self._transport is not None  # noqa: S101 - set when it was opened
        self._reading = reading
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._waiting
        finally:
            self._waiting = None

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Speak TLS from now on."""
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
        waiting, reading = self._waiting, self._reading
        if waiting is None or waiting.done() or reading is None:
            self.close()  # an answer that nobody asked for must not become the next one's
            return
        try:
            is_complete = reading.feed(data)
        except (MalformedHttp, TooLarge) as error:
            self._fail(error)
            return
        if is_complete and reading.response is not None:
            waiting.set_result(reading.response)

    def eof_received(self) -> None:
        self._ended(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(exc)

    def _ended(self, error: Exception | None) -> None:
        waiting, reading = self._waiting, self._reading
        if waiting is None or waiting.done() or reading is None:
            return
        if error is None and reading.end() and reading.response is not None:
            waiting.set_result(reading.response)
            return
        when = "in the middle of the answer" if reading.has_begun else "before an answer came"
        self._fail(error or ConnectionResetError(f"the connection was closed {when}"))

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
        self.close()


class Connections:
    """The connections to a server on one event loop."""

    def __init__(self, server: Server, most_bytes: int) -> None:
        self._server = server
        self._most_bytes = most_bytes
        self._idle: list[Connection] = []
        self._context: ssl.SSLContext | None = None

    async def exchange(self, request: bytes) -> Response:
        """The answer to a request. Raises OSError, MalformedHttp, TooLarge."""
        connection = self._idle_one() or await self._opened()
        try:
            response = await connection.exchange(request, ResponseParser(self._most_bytes))
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
        """Close those that are idle; one in use closes when its exchange is cancelled."""
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # transports close with the next turn of the loop

    def _idle_one(self) -> Connection | None:
        """The one used last, if it is still good."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now - connection.idle_since < LONGEST_IDLE_S:
                return connection
            connection.close()
        return None

    async def _opened(self) -> Connection:
        server = self._server
        if server.proxy is not None:
            return await self._through_proxy(server, server.proxy)
        _, connection = await asyncio.get_running_loop().create_connection(
            Connection,
            server.host,
            server.port,
            ssl=self._tls() if server.is_secure else None,
            # Racing one address against none costs time, and loses a socket if it is cancelled.
            happy_eyeballs_delay=None if _is_address(server.host) else 0.25,
        )
        return connection

    async def _through_proxy(self, server: Server, proxy: str) -> Connection:
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
        where = f"{server.host}:{server.port}"
        head = f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{proxy_header(proxy)}\r\n"
        answer = await connection.exchange(
            head.encode(), ResponseParser(self._most_bytes, has_body=False)
        )
        if answer.status != 200:
            raise ProxyRefused(f"the proxy answered HTTP {answer.status}")
        await connection.secure(self._tls(), server.host)

    def _tls(self) -> ssl.SSLContext:
        """Made once: reading the certificates takes a while."""
        if self._context is None:
            self._context = ssl.create_default_context()
        return self._context


def proxy_header(proxy: str) -> str:
    """The header line with the name and password that a proxy's URL holds, "" if it has none."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return ""
    words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Proxy-Authorization: Basic {base64.b64encode(words.encode()).decode()}\r\n"


def _is_address(host: str) -> bool:
    """Whether the host is written as the one address that it has."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
