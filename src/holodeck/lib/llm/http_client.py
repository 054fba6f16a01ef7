"""HTTP client for our own requests to a server."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from weakref import WeakKeyDictionary

from holodeck.lib.llm.errors import (
    MAX_MESSAGE,
    RequestError,
    malformed_response,
    no_connection_message,
    unreachable_reason,
)
from holodeck.lib.llm.http_body import Decoder, MalformedHttp, TooLarge
from holodeck.lib.llm.http_connection import (
    Connection,
    ConnectionPool,
    Response,
    ResponseReader,
    Server,
)
from holodeck.lib.support.text import one_line


class HttpClient:
    """POSTs JSON to a server, over a pool of connections per event loop.

    Args:
        server: The URL and the proxy.
        headers: Headers of every request, besides those that every HTTP client sends.
        max_bytes: The largest response body; reading ends there.
        timeout: Seconds for a request; None for no limit.
        token: Returns a token for each request, if it has no key among its headers.
    """

    def __init__(
        self,
        server: Server,
        headers: Mapping[str, str],
        max_bytes: int,
        timeout: float | None,
        token: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self._token = token
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
        with self._request_errors():
            async with limit:
                return await self._pool().exchange(await self._authorized(request))

    async def begin(self, request: bytes) -> Connection:
        """Send a request and return the response once its head has come, whatever its status.

        Its `finish` must be called. Raises RequestError.
        """
        reader = ResponseReader(self._max_bytes)
        with self._request_errors():
            async with asyncio.timeout(self._timeout):
                authorized = await self._authorized(request)
                return await self._pool().begin(authorized, reader)

    async def read(self, response: Connection) -> AsyncIterator[bytes]:
        """Yield the body of a response in pieces, decoded. Raises RequestError."""
        coding = response.head.headers.get("content-encoding", "identity").strip().lower()
        with self._request_errors():
            decoder = None if coding == "identity" else Decoder(coding, self._max_bytes)
            pieces = aiter(response.pieces())
            while True:
                async with asyncio.timeout(self._timeout):
                    piece = await anext(pieces, None)
                if piece is None:
                    break
                yield piece if decoder is None else decoder.feed(piece)
            if decoder is not None:
                decoder.end()

    async def _authorized(self, request: bytes) -> bytes:
        """Return the request with a token, if it needs one. Raises RequestError."""
        if self._token is None:
            return request
        header = f"Authorization: Bearer {await self._token()}\r\n".encode()
        return self._head + header + request[len(self._head) :]

    @contextmanager
    def _request_errors(self) -> Iterator[None]:
        """Raise the RequestError for what goes wrong in the block."""
        try:
            yield
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
    defaults = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    shared = {**defaults, "User-Agent": "holodeck", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in shared.items())
    return f"{server.begin_request('POST')}{lines}".encode()


def connection_error(error: OSError, server: Server) -> RequestError:
    """Return the error for a connection that could not be made or was lost."""
    unreachable = unreachable_reason(error)
    reason = unreachable or one_line(str(error), MAX_MESSAGE) or type(error).__name__
    return RequestError(
        no_connection_message(server.contact, reason),
        is_transient=not isinstance(error, ssl.SSLCertVerificationError),
        is_unreachable=unreachable is not None,
    )
