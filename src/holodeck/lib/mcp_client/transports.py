"""Servers in a process of their own, which ends with the connection, and servers at a URL.

The process leads a process group. Responses of a URL (streamable HTTP, SSE and websocket) have a
limited size.

The transport of the SDK ends the program that it started, but not what that one has started (`npx`
starts the server itself), reads lines of any length, and logs what a server prints to stdout.
"""

import asyncio
import functools
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio

from holodeck.lib.mcp_client.server import (
    MAX_MESSAGE_BYTES,
    MessageTooLarge,
    ServerOutput,
    ServerProcess,
    ServerUrl,
)
from holodeck.lib.observability import continue_trace_of_message
from holodeck.lib.processes.process_guard import GUARD, kill_group
from holodeck.lib.support.text import one_line

if TYPE_CHECKING:
    import httpx

CLOSE_S = 2.0
"""How long a server may take to end by itself once its stdin is closed."""
TERM_S = 1.0
"""How long it may take after SIGTERM; then it is killed."""
_LAST_WORDS_S = 0.5
"""How long output is still read after the end of the process."""
_CHUNK = 65_536


@asynccontextmanager
async def stdio_streams(server: ServerProcess, output: ServerOutput) -> AsyncIterator[Any]:
    """Start the server, and yield the streams of messages from it and to it.

    The first stream ends with the output of the server. Raises OSError if it cannot be started.
    """
    process = await _start(server)
    incoming, received = anyio.create_memory_object_stream[Any](0)
    to_send, outgoing = anyio.create_memory_object_stream[Any](0)
    stderr = asyncio.create_task(_read_stderr(process, output))
    tasks = [
        asyncio.create_task(_read(process, server, incoming, output)),
        asyncio.create_task(_write(process, server, outgoing)),
    ]
    grace = CLOSE_S
    GUARD.watch(process.pid)
    try:
        yield received, to_send
    except asyncio.CancelledError:
        grace = 0.0
        raise
    finally:
        try:
            for task in tasks:
                task.cancel()
            await _end(process, grace)
            await asyncio.wait([stderr, *tasks], timeout=_LAST_WORDS_S)
        finally:
            GUARD.release(process.pid)
            stderr.cancel()
            process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - its pipes
            output.exit_code = process.returncode
            for stream in (incoming, received, to_send, outgoing):
                stream.close()


async def _start(server: ServerProcess) -> asyncio.subprocess.Process:
    """Start the process; if that is cancelled, nothing of it is left."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *server.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=server.cwd,
            env=server.env,
            limit=MAX_MESSAGE_BYTES,
            start_new_session=True,  # a process group, and no Ctrl-C from the terminal
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # asyncio would end the program only, and wait for what that has started
        with suppress(OSError):
            process = await starting
            kill_group(process.pid)
            await process.wait()
            process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - its pipes
        raise


async def _end(process: asyncio.subprocess.Process, grace: float) -> None:
    """Close stdin, which ends a server; else end its group by a signal, and then kill it."""
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    try:
        process.stdin.close()
        if not await _has_ended(process, grace):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGTERM)
            await _has_ended(process, TERM_S)
    finally:
        kill_group(process.pid)  # also what it has started
    await process.wait()


async def _has_ended(process: asyncio.subprocess.Process, limit: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(limit):
            await process.wait()
    return process.returncode is not None


async def _read(
    process: asyncio.subprocess.Process, server: ServerProcess, to: Any, output: ServerOutput
) -> None:
    """Pass on the messages in the output of the server, until it ends."""
    from mcp.shared.message import SessionMessage
    from mcp.types import JSONRPCMessage

    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with to:
            while True:
                try:
                    line = await process.stdout.readline()
                except ValueError:  # the limit of the stream
                    await to.send(MessageTooLarge())
                    return
                if not line:
                    return
                text = line.decode(server.encoding, errors="replace").strip()
                if not text:
                    continue
                try:
                    message = JSONRPCMessage.model_validate_json(text)
                except ValueError:
                    output.stray.append(one_line(text, 200))
                    continue
                await to.send(SessionMessage(message))


async def _write(process: asyncio.subprocess.Process, server: ServerProcess, source: Any) -> None:
    """Write the messages to the server, until it reads no more."""
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    with suppress(ConnectionError, anyio.ClosedResourceError):
        async with source:
            async for item in source:
                text = item.message.model_dump_json(by_alias=True, exclude_none=True)
                process.stdin.write(f"{text}\n".encode(server.encoding, errors="replace"))
                await process.stdin.drain()


async def _read_stderr(process: asyncio.subprocess.Process, output: ServerOutput) -> None:
    assert process.stderr is not None  # noqa: S101 - a pipe was asked for
    while data := await process.stderr.read(_CHUNK):
        output.add_stderr(data)


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
