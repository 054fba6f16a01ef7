"""MCP servers: in a process of their own, which ends with the connection, and at a URL.

The process leads a process group. Responses of a URL (streamable HTTP, SSE and websocket) have a
limited size.

The transport of the SDK ends the program that it started, but not what that one has started (`npx`
starts the server itself), reads lines of any length, and logs what a server prints to stdout.
"""

import asyncio
import functools
import re
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import anyio

from holodeck.lib.observability.tracing import continue_trace_of_message
from holodeck.lib.processes.child_process import ChildProcess, Launch
from holodeck.lib.support.text import one_line

if TYPE_CHECKING:
    import httpx

MAX_MESSAGE_BYTES = 10_000_000
_STDERR_BYTES = 4_000
_MAX_STRAY_LINES = 3
_SHOWN = 500

_PASSED_ON = re.compile(
    "HOME|LOGNAME|PATH|SHELL|TERM|USER|LANG|LANGUAGE|LC_.*|TZ|TMPDIR|TEMP|TMP|XDG_.*"
    "|(?:HTTPS?|ALL|NO)_PROXY|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    "|NODE_EXTRA_CA_CERTS|NPM_CONFIG_.*|UV_.*|PIP_.*|DOCKER_.*",
    re.IGNORECASE,
)


class MessageTooLarge(Exception):
    """A server sent more in one message than is read."""


def passed_on(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of holodeck that a server gets; API keys are not among them."""
    return {name: value for name, value in variables.items() if _PASSED_ON.fullmatch(name)}


@dataclass(frozen=True)
class ServerProcess:
    """A server that speaks through stdin and stdout."""

    command: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    """All of its variables."""
    encoding: str = "utf-8"


@dataclass(frozen=True)
class ServerUrl:
    """A server that is reached at a URL."""

    transport: Literal["http", "sse", "websocket"]
    url: str
    headers: Mapping[str, str]
    connect_timeout: float | None = None
    """Seconds until a connection must stand, and until a request must be sent."""
    read_timeout: float | None = None
    """Seconds in which the server may send nothing."""
    terminate_on_close: bool = True
    """Whether the server is told the end of the session."""


@dataclass
class ServerOutput:
    """What a server wrote besides its messages: the end of its stderr, and stray lines."""

    stray: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_STRAY_LINES))
    """The last lines of stdout that are not messages."""
    exit_code: int | None = None
    """None while the process runs, and without one."""
    _stderr: bytearray = field(default_factory=bytearray)

    def add_stderr(self, data: bytes) -> None:
        """Keep the end of what was written to stderr."""
        self._stderr += data
        del self._stderr[:-_STDERR_BYTES]

    def describe(self) -> str:
        """Return what may explain a failure, as the end of a message; "" if there is nothing."""
        parts = []
        if self.exit_code is not None:
            parts.append(f"it ended with exit code {self.exit_code}")
        if self.stray:
            lines = one_line(" | ".join(self.stray), _SHOWN)
            parts.append(f"it wrote to stdout, where only messages belong: {lines}")
        last = self._stderr.decode(errors="replace").strip()
        if last:
            parts.append(f"its last lines: {one_line(last[-_SHOWN:], _SHOWN)}")
        return "".join(f"; {part}" for part in parts)


CLOSE_S = 2.0
"""How long a server may take to end by itself once its stdin is closed."""
TERM_S = 1.0
"""How long it may take after SIGTERM; then it is killed."""


@asynccontextmanager
async def stdio_streams(server: ServerProcess, output: ServerOutput) -> AsyncIterator[Any]:
    """Start the server, and yield the streams of messages from it and to it.

    The first stream ends with the output of the server. Raises OSError if it cannot be started.
    """
    process = _Server(server.encoding, output)
    await process.start(Launch(server.command, server.cwd, server.env))
    grace = CLOSE_S
    try:
        yield process, process
    except asyncio.CancelledError:
        grace = 0.0
        raise
    finally:
        try:
            await process.close(grace, TERM_S)
        finally:
            output.exit_code = process.exit_code


class _Server(ChildProcess):
    """The process of a server, and both streams of messages, as the SDK's session uses them."""

    name = "the server"

    def __init__(self, encoding: str, output: ServerOutput) -> None:
        super().__init__()
        self._encoding = encoding
        self._output = output
        self._lines = asyncio.StreamReader(MAX_MESSAGE_BYTES)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Do nothing: the process ends with the connection."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        """Return the next message, or why there is none."""
        from mcp.shared.message import SessionMessage
        from mcp.types import JSONRPCMessage

        while True:
            try:
                line = await self._lines.readline()
            except ValueError:  # the limit of the stream
                return MessageTooLarge()
            if not line:
                raise StopAsyncIteration
            text = line.decode(self._encoding, errors="replace").strip()
            if not text:
                continue
            try:
                return SessionMessage(JSONRPCMessage.model_validate_json(text))
            except ValueError:
                self._output.stray.append(one_line(text, 200))

    async def send(self, message: Any) -> None:
        """Write a message to the server."""
        text = message.message.model_dump_json(by_alias=True, exclude_none=True)
        self.write(f"{text}\n".encode(self._encoding, errors="replace"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        stdout = cast(asyncio.SubprocessTransport, transport).get_pipe_transport(1)
        # It is not read faster than its messages are.
        self._lines.set_transport(cast(asyncio.ReadTransport, stdout))

    def data_read(self, data: bytes) -> None:
        self._lines.feed_data(data)

    def stderr_read(self, data: bytes) -> None:
        self._output.add_stderr(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        super().pipe_connection_lost(fd, exc)
        if fd == 1:
            self._lines.feed_eof()


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
            async for item in source:
                await socket.send(item.message.model_dump_json(by_alias=True, exclude_none=True))


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
