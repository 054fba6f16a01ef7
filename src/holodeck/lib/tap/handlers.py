"""The handlers that a request passes through: one notes what passes, one sends it on."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holodeck.lib.llm.errors import unreachable_reason
from holodeck.lib.tap.channel import Exchange
from holodeck.lib.tap.exchange import (
    Handler,
    Request,
    Response,
    UpstreamError,
    end_to_end,
    header,
)
from holodeck.lib.text import one_line

if TYPE_CHECKING:
    from httpx2 import AsyncClient
    from httpx2 import Request as HttpRequest
    from httpx2 import Response as HttpResponse

_READABLE_CODINGS = frozenset({"gzip", "x-gzip", "deflate", "identity"})


class Recorder:
    """Notes what passes between the agent and another handler.

    Args:
        answer: The next handler.
        open_exchange: Returns the exchange that a request begins.
    """

    def __init__(self, answer: Handler, open_exchange: Callable[[Request], Exchange]) -> None:
        self._answer = answer
        self._open_exchange = open_exchange

    @asynccontextmanager
    async def __call__(self, request: Request) -> AsyncIterator[Response]:
        """Yield the response of the next handler."""
        exchange = self._open_exchange(request)
        try:
            async with self._answer(request) as response:
                exchange.begin(response)
                async with aclosing(_record_stream(exchange, response)) as body:
                    yield replace(response, body=body)
        finally:
            exchange.end()


async def _record_stream(exchange: Exchange, response: Response) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a body; each is noted before the agent can act on it."""
    length = header(response.headers, b"content-length")
    left = int(length) if length is not None and length.isdigit() else -1
    async for piece in response.body:
        left -= len(piece)
        exchange.feed(piece, is_last=left == 0)
        yield piece
    if left != 0:
        exchange.feed(b"", is_last=True)


class Forwarder:
    """Sends requests on to their servers; nothing in a response is changed.

    Of a request, only `Accept-Encoding` is: a response in a coding that the tap cannot decode could
    not be read.
    """

    def __init__(self) -> None:
        self._client: AsyncClient | None = None

    @asynccontextmanager
    async def __call__(self, request: Request) -> AsyncIterator[Response]:
        """Yield the response of the server; 502 with the reason if there is none."""
        import httpx2

        failed = None
        try:
            response = await self._get_client().send(_upstream_request(request), stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            failed = error_response(502, "upstream_error", _describe_failure(error, request))
        if failed is not None:
            yield failed
            return
        try:
            headers = end_to_end(response.headers.raw)
            reason = response.extensions.get("reason_phrase", b"")
            yield Response(response.status_code, headers, _body_pieces(response), reason)
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close all connections to servers."""
        if self._client is not None:
            await self._client.aclose()

    def _get_client(self) -> "AsyncClient":
        import httpx2

        if self._client is None:
            self._client = httpx2.AsyncClient(
                # A cookie that one case receives must not be sent by another.
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                timeout=None,  # the agent's client has a limit, and closes
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            )
        return self._client


def _upstream_request(request: Request) -> "HttpRequest":
    import httpx2

    headers = []
    for name, value in end_to_end(request.headers):
        match name.lower():
            case b"host" | b"content-length" | b"expect":
                continue
            case b"accept-encoding":
                headers.append((name, _decodable_codings(value)))
            case _:
                headers.append((name, value))
    has_body = request.body or header(request.headers, b"content-length") is not None
    content = request.body if has_body else None
    url = request.upstream.url_of(request.path)
    return httpx2.Request(request.method, url, headers=headers, content=content)


def _decodable_codings(accepted: bytes) -> bytes:
    """Return the codings of an `Accept-Encoding` header that the tap can decode."""
    codings = [one.strip() for one in accepted.decode("latin-1").split(",")]
    known = [one for one in codings if one.partition(";")[0].strip().lower() in _READABLE_CODINGS]
    return (", ".join(known) or "identity").encode("latin-1")


async def _body_pieces(response: "HttpResponse") -> AsyncIterator[bytes]:
    """Yield the pieces of a body as they arrive, not decoded. Raises UpstreamError."""
    import httpx2

    try:
        async for piece in response.aiter_raw():
            yield piece
    except httpx2.HTTPError as error:
        raise UpstreamError(type(error).__name__) from error


def error_response(status: int, code: str, message: str) -> Response:
    """Return a response of the tap itself."""
    content = error_content(code, message)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]

    async def body() -> AsyncIterator[bytes]:
        yield content

    return Response(status, headers, body())


def error_content(code: str, message: str) -> bytes:
    """Return an error as JSON, in the format of OpenAI's errors."""
    error = {"message": message, "type": "holodeck_tap_error", "param": None, "code": code}
    return json.dumps({"error": error}).encode()


def _describe_failure(error: Exception, request: Request) -> str:
    parts = urlsplit(request.upstream.url)
    reason = unreachable_reason(error) or one_line(str(error), 200) or type(error).__name__
    variable = request.upstream.route.variable
    return (
        f"holodeck's tap got no response from {parts.scheme}://{parts.hostname}"
        f"{f':{parts.port}' if parts.port else ''} ({variable}): {reason}"
    )
