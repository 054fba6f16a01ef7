"""An HTTP server on 127.0.0.1 with an event loop of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from holodeck.lib.processes.background_loop import BackgroundRun
from holodeck.lib.tap.server import Answer, ClientConnection


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
