"""A server in a process of its own, which leads a process group and ends with the connection.

The transport of the SDK ends the program that it started, but not what that one has started (`npx`
starts the server itself), reads lines of any length, and logs what a server prints to stdout.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self, cast

from holodeck.lib.mcp_client.server import (
    MAX_MESSAGE_BYTES,
    MessageTooLarge,
    ServerOutput,
    ServerProcess,
)
from holodeck.lib.processes.child_process import ChildProcess, Launch
from holodeck.lib.support.text import one_line

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
