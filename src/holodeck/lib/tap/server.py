"""An HTTP/1.1 server on 127.0.0.1: requests read to their end, responses sent as they arrive."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import cast

import h11

from holodeck.lib.llm.request_handler import Headers, StreamedResponse
from holodeck.lib.processes.threads import BackgroundRun
from holodeck.lib.tap.exchange import UpstreamError, error_content

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64_000
MAX_REQUEST_BYTES = 64_000_000
"""Of a body; models read no larger ones."""
MAX_WAITING_BYTES = 64_000
"""Of what a client may send before it has read the response."""
_REFUSED_S = 2.0
"""How long a client whose request is refused may go on sending it, so that it reads the answer."""


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as the client sent it, read to its end."""

    method: str
    target: str
    """Path and query."""
    headers: Headers
    body: bytes


Answer = Callable[[ReceivedRequest], AbstractAsyncContextManager[StreamedResponse]]


class ClientConnection(asyncio.Protocol):
    """One connection of a client; when it leaves, what is done for it is cancelled.

    Args:
        answer: Returns the response to a request.
        connections: The open connections; this one adds and removes itself.
    """

    def __init__(self, answer: Answer, connections: set["ClientConnection"]) -> None:
        self._answer = answer
        self._connections = connections
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._waiting_bytes = 0
        self._is_refused = False
        self._task: asyncio.Task[None] | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's name
        self._connections.discard(self)
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._task is not None:
            self._waiting_bytes += len(data)
            if self._waiting_bytes > MAX_WAITING_BYTES:
                self.close()
                return
        try:
            self._http.receive_data(data)
            if self._task is None:
                self._read()
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, "malformed_request", "this is not HTTP/1.1")

    def close(self) -> None:
        """Close at once."""
        self._transport.abort()

    def _read(self) -> None:
        """Read what has arrived, and answer once a request is complete."""
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._head = event
                if self._http.they_are_waiting_for_100_continue:
                    self._send(h11.InformationalResponse(status_code=100, headers=[]))
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > MAX_REQUEST_BYTES:
                    limit = f"the body is larger than {MAX_REQUEST_BYTES / 1e6:g} MB"
                    self._refuse(413, "request_too_large", limit)
                    return
            elif isinstance(event, h11.EndOfMessage):
                self._start()
                return
            else:
                if isinstance(event, h11.ConnectionClosed):
                    self._transport.close()
                return

    def _start(self) -> None:
        assert self._head is not None  # noqa: S101 - the head precedes the end
        request = ReceivedRequest(
            self._head.method.decode("latin-1"),
            self._head.target.decode("latin-1"),
            list(self._head.headers.raw_items()),
            bytes(self._body),
        )
        self._head, self._body = None, bytearray()
        self._task = asyncio.get_running_loop().create_task(self._respond(request))

    async def _respond(self, request: ReceivedRequest) -> None:
        try:
            async with self._answer(request) as response:
                await self._write(response)
        except (UpstreamError, h11.ProtocolError) as error:
            logger.debug("tap: the response broke off: %s", error)
            self.close()
            return
        except BaseException:  # else the client would wait for ever
            self.close()
            raise
        finally:
            self._task, self._waiting_bytes = None, 0
        self._next_request()

    async def _write(self, response: StreamedResponse) -> None:
        self._send(
            h11.Response(
                status_code=response.status, headers=[*response.headers], reason=response.reason
            )
        )
        async for piece in response.body:
            self._send(h11.Data(data=piece))
            await self._can_write.wait()
        self._send(h11.EndOfMessage())

    def _next_request(self) -> None:
        if self._http.our_state is h11.MUST_CLOSE:
            self._transport.close()
            return
        try:
            self._http.start_next_cycle()
            self._read()
        except h11.RemoteProtocolError:
            self.close()

    def _send(self, event: h11.Event) -> None:
        self._transport.write(self._http.send(event) or b"")

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer, and close once the client has done so.

        To close while it still sends would reset the connection, and lose the answer.
        """
        self._is_refused = True
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            content = error_content(code, message)
            headers = [("content-type", "application/json"), ("connection", "close")]
            headers.append(("content-length", str(len(content))))
            self._send(h11.Response(status_code=status, headers=headers))
            self._send(h11.Data(data=content))
        self._transport.write_eof()
        asyncio.get_running_loop().call_later(_REFUSED_S, self._transport.close)


async def _nothing() -> None:
    """Do nothing."""


class LoopbackServer:
    """Answers requests in a thread of its own.

    So an agent that blocks the runner's event loop while it waits for the server is answered.

    Args:
        answer: Returns the response to a request.
        name: The name of the thread.
        port: Where it listens; 0 for a free port.
        on_close: Called on its event loop once all connections are closed.
    """

    def __init__(
        self,
        answer: Answer,
        name: str,
        port: int = 0,
        on_close: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self.port = port
        self._answer = answer
        self._name = name
        self._on_close = on_close
        self._run: BackgroundRun[None] | None = None
        self._ready: Future[int] = Future()

    async def start(self) -> None:
        """Listen; `port` is then the port. Raises OSError."""
        self._run = BackgroundRun(self._serve, self._name)
        self.port = await asyncio.wrap_future(self._ready)

    async def close(self) -> None:
        """Close all connections; may be called twice."""
        run, self._run = self._run, None
        if run is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            await asyncio.wrap_future(run.outcome)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        connections = set[ClientConnection]()
        try:
            server = await self._loop.create_server(
                lambda: ClientConnection(self._answer, connections),
                "127.0.0.1",
                self.port,
                backlog=1024,
            )
        except OSError as error:
            self._ready.set_exception(error)
            return
        self._ready.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        while connections or asyncio.all_tasks() - {asyncio.current_task()}:
            for connection in [*connections]:
                connection.close()
            await asyncio.sleep(0)
        await self._on_close()
