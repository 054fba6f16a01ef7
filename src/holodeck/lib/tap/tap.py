"""The tap: a proxy on 127.0.0.1 in a thread of its own, its channels, and what it forwards."""

import secrets
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace
from hmac import compare_digest
from urllib.parse import urlsplit

from holodeck.errors import ConfigError
from holodeck.lib.llm.endpoint import ProxyFor, is_usable_url
from holodeck.lib.llm.errors import unreachable_reason
from holodeck.lib.llm.http_body import MalformedHttp
from holodeck.lib.llm.http_connection import (
    Connection,
    ConnectionPool,
    ResponseReader,
    Server,
    basic_credentials,
)
from holodeck.lib.llm.request_handler import (
    RequestHandler,
    StreamedResponse,
    answer_with,
    request_handler,
)
from holodeck.lib.support.text import one_line
from holodeck.lib.tap.channel import Channel
from holodeck.lib.tap.exchange import (
    NO_REPLY,
    Request,
    Upstream,
    UpstreamError,
    end_to_end,
    error_response,
    header,
    tap_variables,
)
from holodeck.lib.tap.reading import TappedExchange
from holodeck.lib.tap.server import LoopbackServer, ReceivedRequest
from holodeck.models.llm import SCRIPTED_URL

_READABLE_CODINGS = frozenset({"gzip", "x-gzip", "deflate", "identity"})


class Forwarder:
    """Sends requests on to their servers; nothing in a response is changed.

    Of a request, only `Accept-Encoding` is: a response in a coding that the tap cannot decode could
    not be read.

    Args:
        proxy_for: Returns the proxy for a URL.
    """

    def __init__(self, proxy_for: ProxyFor) -> None:
        self._proxy_for = proxy_for
        self._pools: dict[Upstream, ConnectionPool] = {}

    @asynccontextmanager
    async def answer(self, request: Request) -> AsyncIterator[StreamedResponse]:
        """Yield the response of the server; 502 with the reason if there is none."""
        if request.upstream.url == SCRIPTED_URL:
            yield error_response(NO_REPLY, "no_model", NO_MODEL)
            return
        try:
            response = await self._send(request)
        except (OSError, MalformedHttp, ConfigError) as error:
            yield error_response(502, "upstream_error", _describe_failure(error, request))
            return
        try:
            head = response.head.event
            headers = end_to_end(head.headers.raw_items())
            pieces = _or_upstream_error(response.pieces())
            yield StreamedResponse(head.status_code, headers, pieces, head.reason)
        finally:
            response.finish()

    async def close(self) -> None:
        """Close all connections to servers."""
        for pool in self._pools.values():
            await pool.close()

    async def _send(self, request: Request) -> Connection:
        """Return the response, whose head has come. Raises OSError, MalformedHttp, ConfigError."""
        upstream = request.upstream
        if upstream not in self._pools:
            if not is_usable_url(upstream.url):
                raise ConfigError(upstream.route.variable, "is not a URL such as 'https://host/v1'")
            server = Server(upstream.url, self._proxy_for(upstream.url))
            self._pools[upstream] = ConnectionPool(server, sys.maxsize)
        pool = self._pools[upstream]
        server = replace(pool.server, url=upstream.url_of(request.path))
        reader = ResponseReader(sys.maxsize, request.method)
        return await pool.begin(_encode(request, server), reader)


def _encode(request: Request, server: Server) -> bytes:
    """Return the request as it is sent; credentials in the URL go before those of the agent."""
    credentials = basic_credentials(server.parts)
    head = server.begin_request(request.method)
    head += f"Authorization: {credentials}\r\n" if credentials else ""
    headers = _headers(request, leaves_authorization_out=credentials is not None)
    lines = b"".join(b"%b: %b\r\n" % line for line in headers)
    return b"".join((_bytes(head), lines, b"\r\n", request.body))


def _headers(request: Request, *, leaves_authorization_out: bool) -> Iterator[tuple[bytes, bytes]]:
    for name, value in end_to_end(request.headers):
        match name.lower():
            case b"host" | b"content-length" | b"expect":
                continue
            case b"authorization" if leaves_authorization_out:
                continue
            case b"accept-encoding":
                yield name, _decodable_codings(value)
            case _:
                yield name, value
    if request.body or header(request.headers, b"content-length") is not None:
        yield b"Content-Length", b"%d" % len(request.body)


async def _or_upstream_error(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces of a body. Raises UpstreamError if it breaks off."""
    try:
        async for piece in pieces:
            yield piece
    except (OSError, MalformedHttp) as error:
        raise UpstreamError(str(error)) from error


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


def _decodable_codings(accepted: bytes) -> bytes:
    """Return the codings of an `Accept-Encoding` header that the tap can decode."""
    codings = [coding.strip() for coding in accepted.decode("latin-1").split(",")]
    known = [
        coding
        for coding in codings
        if coding.partition(";")[0].strip().lower() in _READABLE_CODINGS
    ]
    return (", ".join(known) or "identity").encode("latin-1")


def _describe_failure(error: Exception, request: Request) -> str:
    parts = urlsplit(request.upstream.url)
    reason = unreachable_reason(error) or one_line(str(error), 200) or type(error).__name__
    variable = request.upstream.route.variable
    return (
        f"holodeck's tap got no response from {parts.scheme}://{parts.hostname}"
        f"{f':{parts.port}' if parts.port else ''} ({variable}): {reason}"
    )


_NOT_FOUND = "nothing is here"
NO_MODEL = "the agent's model is scripted, and answers with text and tool calls in test cases only"


class Tap:
    """A proxy between agents and the servers of their models.

    It has an event loop in a thread of its own: an agent that blocks the runner's loop while it
    waits for its model waits for the tap.

    Args:
        upstreams: The server of each route, by the route's segment in URLs.
        proxy_for: Returns the proxy for a URL; without it, there is none.
    """

    def __init__(
        self, upstreams: Mapping[str, Upstream], proxy_for: ProxyFor = lambda _: None
    ) -> None:
        self._upstreams = upstreams
        self._token = secrets.token_urlsafe(24)
        self._channels: dict[str, Channel] = {}
        self._handler = request_handler()
        """What answers requests outside of turns; None leaves them to the models alone."""
        self._forwarder = Forwarder(proxy_for)
        self._server = LoopbackServer(self._respond, "holodeck-tap", on_close=self._forwarder.close)

    async def start(self) -> None:
        """Listen on a free port. Raises OSError."""
        await self._server.start()

    async def close(self) -> None:
        """Close all connections; may be called twice."""
        await self._server.close()

    def open_channel(self, unused: str, *, replaces_results: bool = False) -> Channel:
        """Return a new channel; see its class for the arguments."""
        channel_id = secrets.token_hex(8)
        url = f"http://127.0.0.1:{self._server.port}/{self._token}/{channel_id}"
        self._channels[channel_id] = Channel(
            channel_id, url, unused, replaces_results=replaces_results
        )
        return self._channels[channel_id]

    def variables(self, channel: Channel, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that lead an agent in that environment to the channel."""
        return tap_variables(channel.url, self._upstreams, environment)

    def close_channel(self, channel: Channel) -> None:
        """Refuse further requests through the channel."""
        self._channels.pop(channel.id, None)

    @asynccontextmanager
    async def _respond(self, received: ReceivedRequest) -> AsyncIterator[StreamedResponse]:
        """Yield the response to a request; 404 without detail for all but the tap's own URLs."""
        channel, request = self._find_request(received)
        if channel is None or request is None:
            yield error_response(404, "not_found", _NOT_FOUND)
            return
        if any(name.lower() == b"upgrade" for name, _ in received.headers):
            yield error_response(501, "not_supported", "the tap passes no WebSockets on")
            return
        request = await channel.with_stubs(request)
        exchange, handler = channel.open_exchange(request)
        try:
            async with self._answer(request, handler or self._handler) as response:
                exchange.begin(response)
                async with aclosing(_record_body(exchange, response)) as body:
                    yield replace(response, body=body)
        finally:
            exchange.end()

    def _answer(
        self, request: Request, handler: RequestHandler | None
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        """Return the response to a request, from what answers those of the running case, if any."""

        def send(body: bytes) -> AbstractAsyncContextManager[StreamedResponse]:
            return self._forwarder.answer(replace(request, body=body))

        return answer_with(handler, request.method, request.path, request.body, send)

    def _find_request(self, received: ReceivedRequest) -> tuple[Channel | None, Request | None]:
        parts = received.target.split("/", 4)
        if len(parts) < 4 or not compare_digest(parts[1].encode(), self._token.encode()):
            return None, None
        segment = parts[3].partition("?")[0]
        channel, upstream = self._channels.get(parts[2]), self._upstreams.get(segment)
        if upstream is None:
            return None, None
        path = received.target.removeprefix("/".join(parts[:3]) + f"/{segment}")
        headers, body = received.headers, received.body
        return channel, Request(upstream, received.method, path, headers, body)


async def _record_body(
    exchange: TappedExchange, response: StreamedResponse
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a body; each is noted before the agent can act on it."""
    length = header(response.headers, b"content-length")
    left = int(length) if length is not None and length.isdigit() else -1
    async for piece in response.body:
        left -= len(piece)
        exchange.feed(piece, is_last=left == 0)
        yield piece
    if left != 0:
        exchange.feed(b"", is_last=True)
