"""MCP servers as what is tested: `backend: {type: mcp, …}`; the adapter for the mcp SDK."""

import asyncio
import json
import os
import re
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from holodeck.errors import BackendError, BackendInitError, BackendSessionError
from holodeck.lib.backends.base import ExecutionResult, Message, Method, ToolCall, ToolResult
from holodeck.lib.backends.process.backend import program_path
from holodeck.lib.exceptions import describe
from holodeck.lib.llm.limiter import MAX_SLOTS
from holodeck.lib.llm.limits import call_limits, call_with_limit
from holodeck.lib.observability import continue_trace_of_message, propagation_headers
from holodeck.lib.suggestions import did_you_mean_or_list
from holodeck.lib.text import one_line
from holodeck.models.backend import McpBackendConfig
from holodeck.models.config import ExecutionConfig

LIST_TOOLS = "tools/list"
"""The input to which a server answers with its tools and their schemas."""
NO_HISTORY = "an MCP server takes no earlier messages"
_PROCESSES = 4
_STDERR_BYTES = 4_000
_CALL = re.compile(r"\s*(?P<tool>[^\s{]+)\s*(?P<arguments>\{.*\})?\s*", re.DOTALL)


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """Return the tool that an input names, and its arguments. Raises BackendSessionError."""
    match = _CALL.fullmatch(text)
    with suppress(ValueError, RecursionError):
        if match is not None:
            return match["tool"], json.loads(match["arguments"] or "{}")
    raise BackendSessionError(
        "the input for an MCP server is a tool and its arguments as JSON, such as"
        f" 'lookup_order {{\"order_id\": 7}}', or '{LIST_TOOLS}'; found {one_line(text, 100)!r}"
    )


class McpBackend:
    """Calls a tool of a server for each input; each conversation has its own server or session.

    Args:
        config: The command or the URL of the server.
        base_dir: The folder from which paths start.
        execution: Time limits; their defaults if not given. Calls are not retried.
    """

    def __init__(
        self,
        config: McpBackendConfig,
        base_dir: Path,
        execution: ExecutionConfig | None = None,
    ) -> None:
        self._config = config
        self._base_dir = base_dir
        self._timeout = call_limits(execution).timeout

    @property
    def concurrency(self) -> int:
        """How many conversations take place at a time: a few, if each starts a process."""
        return MAX_SLOTS if self._config.command is None else _PROCESSES

    async def initialize(self) -> None:
        """Connect once, so that a server that does not work is one error. Raises BackendError."""
        try:
            await (await self.create_session()).close()
        except BackendSessionError as error:
            raise BackendInitError(str(error)) from error

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        session = await self.create_session(context)
        try:
            return await session.send(message)
        finally:
            await session.close()

    async def create_session(self, context: Sequence[Message] | None = None) -> "McpSession":
        """Return a conversation: a process of its own, or a session of its own at the URL."""
        if context:
            raise BackendSessionError(NO_HISTORY)
        connection = _Connection(self._config, self._base_dir)
        await call_with_limit(connection.open, self._timeout)
        return McpSession(connection, self._timeout)

    def history_problem(self, method: Method) -> str | None:  # noqa: ARG002 - the same for both
        """Return why the server cannot be given earlier messages."""
        return NO_HISTORY

    async def teardown(self) -> None:
        """Do nothing: conversations close their connections."""


class McpSession:
    """A conversation: calls of tools on one connection."""

    def __init__(self, connection: "_Connection", timeout: float | None) -> None:
        self._connection = connection
        self._timeout = timeout

    async def send(self, message: str) -> ExecutionResult:
        tool, arguments = parse_call(message)
        if tool == LIST_TOOLS:
            return self._connection.list_tools()
        return await call_with_limit(partial(self._connection.call, tool, arguments), self._timeout)

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        yield (await self.send(message)).response

    async def close(self) -> None:
        await self._connection.close()


class _Connection:
    """A connection to a server, held by a task: the SDK wants it closed where it was opened."""

    def __init__(self, config: McpBackendConfig, base_dir: Path) -> None:
        self._config = config
        self._base_dir = base_dir
        self._tools: dict[str, Any] = {}
        self._session: Any = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stderr: TextIO

    async def open(self) -> None:
        """Connect and read the server's tools. Raises BackendSessionError."""
        ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(ready))
        try:
            await ready
        except BaseException:
            self._task.cancel()
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection, and end the process; may be called twice."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    def list_tools(self) -> ExecutionResult:
        """Return the tools as the server describes them."""
        tools = [one.model_dump(mode="json", exclude_none=True) for one in self._tools.values()]
        return ExecutionResult(
            json.dumps(tools, ensure_ascii=False),
            tool_calls=[],
            structured_output=tools,
            tools=[*self._tools],
        )

    async def call(self, tool: str, arguments: dict[str, Any]) -> ExecutionResult:
        """Return the result of a tool. Raises BackendSessionError."""
        if tool not in self._tools:
            hint = did_you_mean_or_list(tool, self._tools)
            raise BackendSessionError(f"the server has no tool {tool!r}{hint}")
        try:
            result = await self._session.call_tool(
                tool, arguments, meta=propagation_headers() or None
            )
        except Exception as error:
            raise self._failed(error) from error
        text = "\n".join(_text_of(block) for block in result.content)
        call: ToolCall = {"name": tool, "arguments": arguments, "call_id": "call_1"}
        value = text if result.structuredContent is None else result.structuredContent
        returned: ToolResult = {"name": tool, "call_id": "call_1", "result": value}
        if result.isError:
            returned["is_error"] = True
        return ExecutionResult(
            text,
            tool_calls=[call],
            tool_results=[returned],
            structured_output=result.structuredContent,
            tools=[*self._tools],
        )

    async def _hold(self, ready: asyncio.Future[None]) -> None:
        """Keep the connection until it is closed; tell `ready` when it can be used, or why not."""
        with tempfile.TemporaryFile("w+") as self._stderr:
            try:
                await self._connect(ready)
            except Exception as error:  # noqa: BLE001 - whoever waits gets it
                if not ready.done():
                    ready.set_exception(self._failed(error))
            finally:
                ready.cancel()

    async def _connect(self, ready: asyncio.Future[None]) -> None:
        from mcp import ClientSession

        async with (
            self._transport() as streams,
            ClientSession(streams[0], streams[1]) as session,
        ):
            await session.initialize()
            self._session = session
            await self._read_tools()
            ready.set_result(None)
            await self._closing.wait()

    async def _read_tools(self) -> None:
        cursor: str | None = None
        while True:
            page = await self._session.list_tools(cursor)
            self._tools |= {tool.name: tool for tool in page.tools}
            cursor = page.nextCursor
            if cursor is None:
                return

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        if self._config.command is None:
            return _http_streams(str(self._config.url), _plain(self._config.headers))
        from mcp.client.stdio import StdioServerParameters, stdio_client

        folder = self._base_dir / (self._config.cwd or "")
        program, *arguments = self._config.command
        server = StdioServerParameters(
            command=program_path(program, folder),
            args=arguments,
            env={**os.environ, **_plain(self._config.env)},  # noqa: TID251 - it inherits all of them
            cwd=folder.absolute(),
        )
        return stdio_client(server, self._stderr)

    def _failed(self, error: BaseException) -> BackendError:
        """Return what happened, with the last lines that the server wrote."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        lines = self._last_lines()
        said = f"; its last lines: {one_line(lines, 500)}" if lines else ""
        return BackendSessionError(f"the MCP server failed: {describe(error)}{said}")

    def _last_lines(self) -> str:
        file = self._stderr.fileno()
        start = max(0, os.fstat(file).st_size - _STDERR_BYTES)
        # The server writes where this file stands, so that it must not be moved.
        return os.pread(file, _STDERR_BYTES, start).decode(errors="replace").strip()


@asynccontextmanager
async def _http_streams(url: str, headers: dict[str, str]) -> AsyncIterator[Any]:
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    async with create_mcp_http_client(headers=headers) as client:
        client.event_hooks["request"].append(continue_trace_of_message)
        async with streamable_http_client(url, http_client=client) as streams:
            yield streams


def _plain(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in values.items()}


def _text_of(block: Any) -> str:
    """Return the text of a content block; of other kinds, the block as JSON."""
    if block.type == "text":
        return str(block.text)
    return str(block.model_dump_json(exclude_none=True))
