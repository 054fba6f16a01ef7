"""A connection to an MCP server, with time limits, and errors that say what the server wrote."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from holodeck.errors import BackendSessionError, BackendTimeoutError
from holodeck.lib.mcp_client.transports import (
    MAX_MESSAGE_BYTES,
    MessageTooLarge,
    ServerOutput,
    ServerProcess,
    ServerUrl,
    stdio_streams,
    url_streams,
)
from holodeck.lib.observability import propagation_headers
from holodeck.lib.support.text import describe, one_line

logger = logging.getLogger(__name__)

CLOSE_S = 5.0
"""How long the end of a connection may take, such as the farewell to a server at a URL."""
_MAX_PAGES = 1_000
_METHOD_NOT_FOUND = -32601
_MAX_CANCELS, _CANCEL_S = 3, 2.0
"""The client of the SDK takes leave of the server also when it is cancelled."""
_SESSION_TERMINATED = 32600
"""The code that the SDK gives a 404."""
_SHOWN = 1_000


class McpConnection:
    """A connection to a server, held by a task: the SDK wants it closed where it was opened.

    Attributes:
        name: What messages call the server.
        tools: The server's tools by name (`mcp.types.Tool`), once it is open.
    """

    def __init__(self, server: ServerProcess | ServerUrl, name: str = "the MCP server") -> None:
        self.name = name
        self.tools: Mapping[str, Any] = {}
        self._server = server
        self._output = ServerOutput()
        self._session: Any = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_ready = False
        self._reason: BaseException | None = None
        """Why the connection ended by itself."""
        self._calls: set[asyncio.Timeout] = set()
        self._background: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        """Whether tools can be called, on the running event loop."""
        task = self._task
        return (
            self._is_ready
            and not self._closing.is_set()
            and task is not None
            and not task.done()
            and task.get_loop() is asyncio.get_running_loop()
        )

    async def open(self, limit: float | None = None) -> None:
        """Connect and read the server's tools, within `limit` seconds.

        Raises BackendSessionError, or BackendTimeoutError if time is up.
        """
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        self._task = loop.create_task(self._hold(ready), name=self.name)
        try:
            async with asyncio.timeout(limit) as scope:
                await ready
        except TimeoutError as error:
            await self._stop()
            if not scope.expired():
                raise
            raise BackendTimeoutError(
                f"{self.name} was not ready within {limit:g} s{self._output.describe()}"
            ) from error
        except BaseException:
            await self._stop()
            raise
        if not self._is_ready:
            await self._stop()
            raise self._failure(self._reason)

    async def close(self) -> None:
        """Close the connection, and end the process; may be called twice."""
        task = self._task
        if task is None or task.done():
            return
        loop = task.get_loop()
        if loop is asyncio.get_running_loop():
            self._closing.set()
            await asyncio.wait([task], timeout=CLOSE_S)
            await self._stop()
        elif not loop.is_closed():  # of another thread, or an event loop that stands still
            loop.call_soon_threadsafe(self._closing.set)

    async def call(self, tool: str, arguments: dict[str, Any], limit: float | None = None) -> Any:
        """Return the result of a tool (`mcp.types.CallToolResult`).

        Raises BackendSessionError if the server refuses the call or ends, BackendTimeoutError after
        `limit` seconds. A call that is cancelled or takes too long is cancelled at the server too.
        """
        if not self.is_open:
            raise self._failure(self._reason)
        session = self._session
        number = session._request_id  # noqa: SLF001 - the call takes it before it first waits
        scope = asyncio.timeout(limit)
        try:
            async with scope:
                self._calls.add(scope)
                return await session.call_tool(tool, arguments, meta=propagation_headers() or None)
        except asyncio.CancelledError:
            self._cancel_request(number)
            raise
        except TimeoutError as error:
            if self.is_open and scope.expired():
                self._cancel_request(number)
                raise BackendTimeoutError(
                    f"{self.name} gave no result of {tool!r} within {limit:g} s"
                    f"{self._output.describe()}"
                ) from error
            raise await self._failure_at_end(error) from error
        except Exception as error:
            if _ends_session(error):
                self._lose(error)
            raise await self._failure_at_end(error) from error
        finally:
            self._calls.discard(scope)

    async def responds(self, limit: float) -> bool:
        """Whether the server answers within `limit` seconds."""
        try:
            async with asyncio.timeout(limit):
                await self._session.send_ping()
        except Exception:  # noqa: BLE001 - whatever the reason is
            return False
        return True

    async def _hold(self, ready: "asyncio.Future[None]") -> None:
        """Keep the connection until it is closed or ends by itself."""
        try:
            await self._connect(ready)
        except Exception as error:  # noqa: BLE001 - whoever calls gets it
            self._reason = self._reason or error
        finally:
            self._closing.set()
            for task in self._background:
                task.cancel()
            for scope in self._calls:
                with suppress(RuntimeError):  # it has ended
                    scope.reschedule(asyncio.get_running_loop().time())
            if not ready.done():
                ready.set_result(None)

    async def _connect(self, ready: "asyncio.Future[None]") -> None:
        from mcp import ClientSession

        async with self._transport() as streams:
            incoming: Any = _Watched(streams[0], self._lose)
            async with ClientSession(incoming, streams[1]) as session:
                await session.initialize()
                self.tools = await _read_tools(session)
                self._session, self._is_ready = session, True
                if not ready.done():
                    ready.set_result(None)
                await self._closing.wait()

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        if isinstance(self._server, ServerProcess):
            return stdio_streams(self._server, self._output)
        return url_streams(self._server)

    def _lose(self, reason: BaseException) -> None:
        """End the connection, because no further messages will come from the server."""
        if not self._closing.is_set():
            self._reason = self._reason or reason
            self._closing.set()

    def _cancel_request(self, number: int) -> None:
        """Tell the server that nobody waits for the result."""
        from mcp.types import CancelledNotification, CancelledNotificationParams, ClientNotification

        if not self.is_open:
            return
        params = CancelledNotificationParams(requestId=number)
        notification = ClientNotification(CancelledNotification(params=params))
        task = asyncio.create_task(self._notify(notification))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _notify(self, notification: Any) -> None:
        with suppress(Exception):  # the server may have ended
            await self._session.send_notification(notification)

    async def _stop(self) -> None:
        """End the connection now."""
        for _ in range(_MAX_CANCELS):
            if self._task is None or self._task.done():
                return
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_CANCEL_S)
        logger.warning("%s: the connection could not be closed", self.name)

    async def _failure_at_end(self, error: BaseException) -> BackendSessionError:
        """Return the failure of a call, with the last words of a server that has ended."""
        if self._closing.is_set() and self._task is not None:
            await asyncio.wait([self._task], timeout=CLOSE_S)
            error = self._reason or error
        return self._failure(error)

    def _failure(self, error: BaseException | None) -> BackendSessionError:
        """Return what happened, with the last lines that the server wrote."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        what = "the connection is closed" if error is None else _describe(error)
        return BackendSessionError(f"{self.name} failed: {what}{self._output.describe()}")


class ConnectionEnded(Exception):
    """The server closed the connection."""


class _Watched:
    """The stream of messages from a server, whose end and whose errors are noticed."""

    def __init__(self, stream: Any, lose: Any) -> None:
        self._stream = stream
        self._lose = lose

    async def __aenter__(self) -> "_Watched":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stream.__aexit__(*error)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            message = await self._stream.__anext__()
        except StopAsyncIteration:
            self._lose(ConnectionEnded())
            raise
        if isinstance(message, Exception):  # not the protocol: nobody knows which call it answers
            self._lose(message)
            raise StopAsyncIteration
        return message


def _ends_session(error: Exception) -> bool:
    """Whether a server at a URL does not know the session any more, as after its restart."""
    from mcp.shared.exceptions import McpError

    return isinstance(error, McpError) and error.error.code == _SESSION_TERMINATED


def _describe(error: BaseException) -> str:
    from mcp.shared.exceptions import McpError

    match error:
        case ConnectionEnded():
            return "it closed the connection"
        case MessageTooLarge():
            return f"its message is larger than {MAX_MESSAGE_BYTES // 1_000_000} MB"
        case McpError():
            return f"it answered with an error: {one_line(error.error.message, _SHOWN)}"
        case _:
            return one_line(describe(error), _SHOWN)


async def _read_tools(session: Any) -> dict[str, Any]:
    """Return all tools of a server; none of one that only offers prompts or resources."""
    from mcp.shared.exceptions import McpError
    from mcp.types import PaginatedRequestParams

    tools: dict[str, Any] = {}
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        params = None if cursor is None else PaginatedRequestParams(cursor=cursor)
        try:
            page = await session.list_tools(params=params)
        except McpError as error:
            if error.error.code == _METHOD_NOT_FOUND:
                return tools
            raise
        tools |= {tool.name: tool for tool in page.tools}
        cursor = page.nextCursor
        if cursor is None:
            break
    return tools
