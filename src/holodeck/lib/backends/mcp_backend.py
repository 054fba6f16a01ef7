"""MCP servers as what is tested: `backend: {type: mcp, …}`."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from holodeck.errors import BackendInitError, BackendSessionError
from holodeck.lib.backends.base import (
    AgentBackend,
    AgentSession,
    Capabilities,
    ExecutionResult,
    Message,
    RequestedCall,
    ToolResult,
    without_history,
)
from holodeck.lib.backends.parsing import passages_in
from holodeck.lib.llm.limits import call_limits, call_with_limit
from holodeck.lib.mcp_client.connection import McpConnection
from holodeck.lib.mcp_client.transports import ServerProcess, ServerUrl, passed_on
from holodeck.lib.processes.child_process import program_path
from holodeck.lib.support.text import did_you_mean_or_list, one_line
from holodeck.models.backend import McpBackendConfig
from holodeck.models.config import ExecutionConfig

LIST_TOOLS = "tools/list"
"""The input to which a server answers with its tools and their schemas."""
NO_HISTORY = "an MCP server takes no earlier messages"
_PROCESSES = 4
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


class McpBackend(AgentBackend):
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
    def capabilities(self) -> Capabilities:
        """A few conversations take place at a time if each starts a process."""
        concurrency = None if self._config.command is None else _PROCESSES
        return Capabilities(concurrency, history_problems=without_history(NO_HISTORY))

    async def initialize(self) -> None:
        """Connect once, so that a server that does not work is one error. Raises BackendError."""
        try:
            await (await self.create_session()).close()
        except BackendSessionError as error:
            raise BackendInitError(str(error)) from error

    async def create_session(self, context: Sequence[Message] | None = None) -> "McpSession":
        """Return a conversation: a process of its own, or a session of its own at the URL."""
        if context:
            raise BackendSessionError(NO_HISTORY)
        connection = McpConnection(_server_of(self._config, self._base_dir))
        await call_with_limit(connection.open, self._timeout)
        return McpSession(connection, self._timeout)

    async def teardown(self) -> None:
        """Do nothing: conversations close their connections."""


class McpSession(AgentSession):
    """A conversation: calls of tools on one connection."""

    def __init__(self, connection: McpConnection, timeout: float | None) -> None:
        self._connection = connection
        self._timeout = timeout

    async def send(self, message: str) -> ExecutionResult:
        tool, arguments = parse_call(message)
        if tool == LIST_TOOLS:
            return self._list_tools()
        return await call_with_limit(partial(self._call, tool, arguments), self._timeout)

    async def close(self) -> None:
        await self._connection.close()

    def _list_tools(self) -> ExecutionResult:
        """Return the tools as the server describes them."""
        tools = [
            tool.model_dump(mode="json", exclude_none=True)
            for tool in self._connection.tools.values()
        ]
        return ExecutionResult(
            json.dumps(tools, ensure_ascii=False),
            tool_calls=[],
            structured_output=tools,
            tools=[*self._connection.tools],
        )

    async def _call(self, tool: str, arguments: dict[str, Any]) -> ExecutionResult:
        """Return the result of a tool. Raises BackendSessionError."""
        if tool not in self._connection.tools:
            hint = did_you_mean_or_list(tool, self._connection.tools)
            raise BackendSessionError(f"the server has no tool {tool!r}{hint}")
        result = await self._connection.call(tool, arguments)
        text = "\n".join(_text_of(block) for block in result.content)
        call: RequestedCall = {"name": tool, "arguments": arguments, "call_id": "call_1"}
        value = text if result.structuredContent is None else result.structuredContent
        returned: ToolResult = {"name": tool, "call_id": "call_1", "result": value}
        if result.isError:
            returned["is_error"] = True
        return ExecutionResult(
            text,
            tool_calls=[call],
            tool_results=[returned],
            structured_output=result.structuredContent,
            tools=[*self._connection.tools],
            retrieval_context=passages_in(result.structuredContent),
        )


def _server_of(config: McpBackendConfig, base_dir: Path) -> ServerProcess | ServerUrl:
    if config.command is None:
        return ServerUrl("http", str(config.url), _plain(config.headers))
    folder = base_dir / (config.cwd or "")
    program, *arguments = config.command
    return ServerProcess(
        command=[program_path(program, folder), *arguments],
        cwd=folder.absolute(),
        env=passed_on(os.environ) | _plain(config.env),  # noqa: TID251 - a few of them
    )


def _plain(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in values.items()}


def _text_of(block: Any) -> str:
    """Return the text of a content block; of other kinds, the block as JSON."""
    if block.type == "text":
        return str(block.text)
    return str(block.model_dump_json(exclude_none=True))
