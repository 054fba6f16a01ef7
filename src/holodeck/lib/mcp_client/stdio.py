"""A server in a process of its own, which leads a process group and ends with the connection.

The transport of the SDK ends the program that it started, but not what that one has started (`npx`
starts the server itself), reads lines of any length, and logs what a server prints to stdout.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio

from holodeck.lib.mcp_client.server import (
    MAX_MESSAGE_BYTES,
    MessageTooLarge,
    ServerOutput,
    ServerProcess,
)
from holodeck.lib.processes.process_guard import GUARD, kill_group
from holodeck.lib.support.text import one_line

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
