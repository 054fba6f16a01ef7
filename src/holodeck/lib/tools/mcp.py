"""Tools of MCP servers: each server is started once for a run, and again after a crash."""

import asyncio
import base64
import json
import logging
import re
from collections.abc import AsyncIterator, Container, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from io import StringIO
from itertools import chain, count
from pathlib import Path
from typing import Any

from holodeck.errors import BackendError, BackendInitError, BackendTimeoutError, ConfigError
from holodeck.lib.mcp_client.connection import McpConnection
from holodeck.lib.mcp_client.transports import ServerProcess, ServerUrl, passed_on
from holodeck.lib.processes.child_process import program_path
from holodeck.lib.support.safe_paths import file_inside
from holodeck.lib.support.text import plural
from holodeck.lib.tools.base import Tool, ToolReply
from holodeck.lib.tools.toolbox import ToolContext
from holodeck.lib.ui.live import show_progress
from holodeck.models.cases.messages import Image
from holodeck.models.tool import McpTool


def texts_of(result: Any) -> list[str]:
    """Return a text for each content block of a result (`mcp.types.CallToolResult`).

    A result with structured content only is one text: its JSON.
    """
    texts = [_text_of(block) for block in result.content]
    if not texts and result.structuredContent is not None:
        return [json.dumps(result.structuredContent, ensure_ascii=False)]
    return texts


def images_of(result: Any) -> list[Image]:
    """Return the images of a result; one that cannot be decoded is left out."""
    binaries = [_binary_of(block) for block in result.content]
    return [Image(data, kind) for data, kind in binaries if data and kind.startswith("image/")]


def _text_of(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type == "resource" and hasattr(block.resource, "text"):
        return str(block.resource.text)
    data, media_type = _binary_of(block)
    if data is None:  # such as the link to a resource
        return str(block.model_dump_json(exclude_none=True))
    return f"[{media_type or 'binary data'}, {plural(len(data), 'byte', form=',')}]"


def _binary_of(block: Any) -> tuple[bytes | None, str]:
    """Return the bytes of a block and their type; None for a block without."""
    holder = block.resource if block.type == "resource" else block
    encoded = getattr(holder, "blob", None) or getattr(holder, "data", None)
    if encoded is None:
        return None, ""
    try:
        data = base64.b64decode(encoded, validate=True)
    except ValueError:
        data = b""
    return data, holder.mimeType or ""


logger = logging.getLogger(__name__)


START_TIMEOUT_S = 60.0
_SHOW_START_AFTER_S = 3.0
_PING_S = 5.0
"""How long a server in which a call took too long may take to answer a ping."""
_MAX_NAME = 64
"""Of a tool, for the APIs of models."""


class McpServer:
    """The tools of a server that an agent.yaml or a config.yaml names.

    A server from a config.yaml that cannot be started is a warning, and its tools are missing.

    Args:
        config: How the server is started or reached.
        context: The agent.
    """

    def __init__(self, config: McpTool, context: ToolContext) -> None:
        self._config = config
        self._context = context
        self._connection: McpConnection | None = None
        self._lock = asyncio.Lock()
        self._failure = ""
        """Why the server could not be started again."""
        self._calls = 0
        """How many are under way."""
        self._is_suspect = False
        """Whether a call took too long, and the server may hang."""

    async def open(self) -> Sequence[Tool]:
        """Start the server, and return its tools. Raises BackendInitError or ConfigError."""
        if not self._config.load_tools:
            return ()
        self._lock, self._failure, self._is_suspect = asyncio.Lock(), "", False
        try:
            self._connection = await self._connect()
        except (BackendError, ConfigError) as error:
            if self._config.is_shared:
                logger.warning("%s; its tools are missing", self._located(error))
                return ()
            if isinstance(error, ConfigError):
                raise
            raise BackendInitError(self._located(error)) from error
        if not self._connection.tools:
            logger.warning("%s has no tools", self._connection.name)
        return self._tools(self._connection.tools.values())

    async def close(self) -> None:
        """Close the connection, and end the server if it was started."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _located(self, error: BackendError | ConfigError) -> str:
        location = "mcp_servers of config.yaml" if self._config.is_shared else "tools"
        is_slow = isinstance(error, BackendTimeoutError)
        hint = "; a server that needs more sets 'timeout'" if is_slow else ""
        return f"{location}: {error}{hint}"

    async def _connect(self) -> McpConnection:
        """Return an open connection. Raises BackendError or ConfigError."""
        name = f"the MCP server {self._config.name!r}"
        connection = McpConnection(server_of(self._config, self._context), name)
        limit = self._config.timeout or START_TIMEOUT_S
        async with _shown(f"starting {name}; it may take up to {limit:g} s"):
            await connection.open(limit)
        return connection

    def _tools(self, offered: Iterable[Any]) -> list[Tool]:
        tools: dict[str, Tool] = {}
        for tool in offered:
            name = _valid(f"{self._config.tool_prefix or ''}{tool.name}", tools)
            tools[name] = Tool(
                name=name,
                description=tool.description or tool.title or "",
                parameters={"type": "object", "properties": {}, **tool.inputSchema},
                call=partial(self._call, tool.name),
                source="mcp",
                server=self._config.name,
            )
        return [*tools.values()]

    async def _call(self, tool: str, arguments: dict[str, Any]) -> ToolReply:
        """Call a tool. Raises BackendError."""
        connection = await self._running()
        self._calls += 1
        try:
            result = await connection.call(tool, arguments, self._config.request_timeout)
        except BackendTimeoutError:
            self._is_suspect = True
            raise
        finally:
            self._calls -= 1
        return self._reply(result)

    def _reply(self, result: Any) -> ToolReply:
        texts = texts_of(result)
        passages = () if result.isError else tuple(texts)
        return ToolReply(
            text="\n".join(texts),
            value=result.structuredContent,
            passages=passages if self._config.is_retrieval else None,
            images=tuple(images_of(result)),
            is_error=bool(result.isError),
        )

    async def _running(self) -> McpConnection:
        """Return the connection; a new one if the server has ended. Raises BackendError."""
        async with self._lock:
            connection = self._connection
            if connection is not None and connection.is_open and not await self._hangs(connection):
                return connection
            if self._failure:
                raise BackendInitError(self._failure)
            if connection is not None:
                await connection.close()
            logger.info("starting the MCP server %r again", self._config.name)
            try:
                self._connection = await self._connect()
            except (BackendError, ConfigError) as error:
                self._failure = f"{error}; it was not started again"
                raise
            return self._connection

    async def _hangs(self, connection: McpConnection) -> bool:
        """Whether a server in which a call took too long, and none is under way, is dead."""
        if not self._is_suspect or self._calls:
            return False
        self._is_suspect = False
        return not await connection.responds(_PING_S)


def server_of(config: McpTool, context: ToolContext) -> ServerProcess | ServerUrl:
    """Return how a server is started or reached. Raises ConfigError for an unusable `env_file`."""
    if config.transport != "stdio":
        return ServerUrl(
            transport=config.transport,
            url=config.url or "",
            headers=_plain(config.headers),
            connect_timeout=config.timeout,
            read_timeout=config.sse_read_timeout,
            terminate_on_close=config.terminate_on_close is not False,
        )
    folder = config.base_dir(context.base_dir)
    return ServerProcess(
        command=[program_path(config.command or "", folder), *(config.args or ())],
        cwd=context.base_dir.absolute(),
        env=_variables(config, context),
        encoding=config.encoding or "utf-8",
    )


def _variables(config: McpTool, context: ToolContext) -> dict[str, str]:
    variables = passed_on(context.environment)
    variables |= variables_of_file(config, context.base_dir)
    if config.config is not None:
        variables["MCP_CONFIG"] = json.dumps(config.config)
    return {**variables, **_plain(config.env)}


def variables_of_file(config: McpTool, agent_dir: Path) -> dict[str, str]:
    """Return the variables in the `env_file` of a server. Raises ConfigError."""
    if config.env_file is None:
        return {}
    # Imported here because few servers have a file.
    from dotenv import dotenv_values

    file = file_inside(config.env_file, config.base_dir(agent_dir))
    values = dotenv_values(stream=StringIO(file.read_text(encoding="utf-8-sig", errors="replace")))
    return {name: value for name, value in values.items() if value is not None}


def _plain(values: Mapping[str, Any] | None) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in (values or {}).items()}


def _valid(name: str, taken: Container[str]) -> str:
    """Return the name with `_` for characters that the APIs of models do not take.

    It gets a number if another tool of the server has become the same.
    """
    name = re.sub(r"[^0-9A-Za-z_-]", "_", name)[:_MAX_NAME] or "tool"
    numbered = (f"{name[: _MAX_NAME - 4]}_{number}" for number in count(2))
    return next(unique for unique in chain([name], numbered) if unique not in taken)


@asynccontextmanager
async def _shown(text: str) -> AsyncIterator[None]:
    """Show that something takes its time, if it does."""
    timer = asyncio.get_running_loop().call_later(_SHOW_START_AFTER_S, show_progress, text)
    try:
        yield
    finally:
        timer.cancel()
