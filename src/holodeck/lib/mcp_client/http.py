"""Servers at a URL: streamable HTTP, SSE and websocket, with responses of a limited size."""

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio

from holodeck.lib.mcp_client.server import MAX_MESSAGE_BYTES, MessageTooLarge, ServerUrl
from holodeck.lib.observability import continue_trace_of_message

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 30.0, 300.0
"""Those of the SDK."""


def url_streams(server: ServerUrl) -> AbstractAsyncContextManager[Any]:
    """Return the streams of messages from a server and to it, as a context."""
    if server.transport == "websocket":
        return _websocket(server)
    if server.transport == "sse":
        from mcp.client.sse import sse_client

        return sse_client(
            server.url,
            dict(server.headers),
            timeout=server.connect_timeout or CONNECT_TIMEOUT_S,
            sse_read_timeout=server.read_timeout or READ_TIMEOUT_S,
            httpx_client_factory=_limited_client,
        )
    return _streamable_http(server)


@asynccontextmanager
async def _websocket(server: ServerUrl) -> AsyncIterator[Any]:
    """Yield the streams; the client of the SDK sends no headers, and is to be removed."""
    from websockets.asyncio.client import connect
    from websockets.typing import Subprotocol

    incoming, received = anyio.create_memory_object_stream[Any](0)
    to_send, outgoing = anyio.create_memory_object_stream[Any](0)
    with incoming, received, to_send, outgoing:
        async with connect(
            server.url,
            subprotocols=[Subprotocol("mcp")],
            additional_headers=server.headers,
            max_size=MAX_MESSAGE_BYTES,
            open_timeout=server.connect_timeout or CONNECT_TIMEOUT_S,
        ) as socket:
            tasks = [
                asyncio.create_task(_read_socket(socket, incoming)),
                asyncio.create_task(_write_socket(socket, outgoing)),
            ]
            try:
                yield received, to_send
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)


async def _read_socket(socket: Any, to: Any) -> None:
    """Pass on the messages of the server, until it closes the connection."""
    from mcp.shared.message import SessionMessage
    from mcp.types import JSONRPCMessage

    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with to:
            try:
                async for text in socket:
                    await to.send(SessionMessage(JSONRPCMessage.model_validate_json(text)))
            except Exception as error:  # noqa: BLE001 - whoever calls gets it
                await to.send(error)


async def _write_socket(socket: Any, source: Any) -> None:
    """Write the messages to the server, until the connection is closed."""
    from websockets.exceptions import ConnectionClosed

    with suppress(ConnectionClosed, anyio.ClosedResourceError):
        async with source:
            async for one in source:
                await socket.send(one.message.model_dump_json(by_alias=True, exclude_none=True))


@asynccontextmanager
async def _streamable_http(server: ServerUrl) -> AsyncIterator[Any]:
    import httpx
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx.Timeout(
        server.connect_timeout or CONNECT_TIMEOUT_S, read=server.read_timeout or READ_TIMEOUT_S
    )
    async with (
        _limited_client(dict(server.headers), timeout) as client,
        streamable_http_client(
            server.url, http_client=client, terminate_on_close=server.terminate_on_close
        ) as streams,
    ):
        yield streams


def _limited_client(
    headers: dict[str, str] | None = None,
    timeout: "httpx.Timeout | None" = None,
    auth: "httpx.Auth | None" = None,
) -> "httpx.AsyncClient":
    """Return a client that does not read what is too large for a message."""
    import httpx

    async def limit(response: httpx.Response) -> None:
        coding = response.headers.get("content-encoding", "identity").lower()
        if coding != "identity":
            raise httpx.DecodingError(f"the server compressed its response ({coding})")
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = _limited_stream()(response.stream, is_stream=is_stream)

    return httpx.AsyncClient(
        headers={**(headers or {}), "Accept-Encoding": "identity"},
        timeout=timeout,
        auth=auth,
        event_hooks={"request": [continue_trace_of_message], "response": [limit]},
    )


@functools.cache
def _limited_stream() -> Any:
    """Return the class of the body of a response, based on that of httpx, as it requires."""
    import httpx

    class LimitedStream(httpx.AsyncByteStream):
        """A stream of events may be of any length, but not a line of it."""

        def __init__(self, stream: Any, *, is_stream: bool) -> None:
            self._stream = stream
            self._is_stream = is_stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = MAX_MESSAGE_BYTES
            async for piece in self._stream:
                if self._is_stream and b"\n" in piece:
                    left = MAX_MESSAGE_BYTES - len(piece) + piece.rindex(b"\n")
                else:
                    left -= len(piece)
                if left < 0:
                    raise MessageTooLarge
                yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    return LimitedStream
