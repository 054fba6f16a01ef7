"""A real MCP server of the SDK, for each of its transports.

`python mcp_servers.py` serves stdio; `serve(transport)` serves a URL from a thread.
"""

import asyncio
import gc
import os
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

COMMAND = [sys.executable, str(Path(__file__).resolve())]
PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 8


def build():
    from mcp.server.fastmcp import FastMCP, Image
    from mcp.types import TextContent
    from pydantic import BaseModel

    server = FastMCP("orders", log_level="ERROR")

    class Order(BaseModel):
        order_id: int
        status: str

    class Address(BaseModel):
        city: str

    @server.tool()
    def lookup_order(order_id: int) -> Order:
        """Look an order up."""
        if order_id == 0:
            raise ValueError("no such order")
        return Order(order_id=order_id, status="late")

    @server.tool(name="ship-to", structured_output=False)
    def ship_to(address: Address, settings: str = "fast") -> str:
        """Ship to an address."""
        return f"shipped to {address.city}, {settings}"

    @server.tool(name="files/search", structured_output=False)
    def search(text: str) -> list[TextContent]:
        return [TextContent(type="text", text=f"{text} {n}") for n in (1, 2)]

    @server.tool(structured_output=False)
    def picture() -> Image:
        return Image(data=PNG, format="png")

    @server.tool(structured_output=False)
    def variables() -> list[str]:
        return sorted(os.environ)

    return server


@contextmanager
def serve(transport, port=0, *, takes_leave=True):
    """Serve `http`, `sse` or `websocket` from a thread, and yield the URL.

    A server that does not take leave never answers the end of a session.
    """
    import uvicorn

    server = build()
    if transport == "http":
        app, path = server.streamable_http_app(), "/mcp"
    elif transport == "sse":
        app, path = server.sse_app(), "/sse"
    else:
        app, path = _websocket_app(server), "/ws"
    app = app if takes_leave else _without_farewell(app)
    config = uvicorn.Config(
        app, port=port, log_level="critical", timeout_graceful_shutdown=1, ws="websockets-sansio"
    )
    http = uvicorn.Server(config)
    thread = threading.Thread(target=http.run, daemon=True)
    thread.start()
    while not http.started:
        time.sleep(0.01)
    port = http.servers[0].sockets[0].getsockname()[1]
    scheme = "ws" if transport == "websocket" else "http"
    try:
        yield f"{scheme}://127.0.0.1:{port}{path}"
    finally:
        http.should_exit = True
        thread.join()
        with warnings.catch_warnings():  # the SDK leaves streams open that are in use at the end
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def _without_farewell(app):
    async def answer(scope, receive, send):
        if scope.get("method") == "DELETE":
            await asyncio.Event().wait()
        await app(scope, receive, send)

    return answer


def _websocket_app(server):
    from mcp.server.websocket import websocket_server
    from starlette.applications import Starlette
    from starlette.routing import WebSocketRoute

    async def endpoint(socket):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            streams = websocket_server(socket.scope, socket.receive, socket.send)
        async with streams as (read, write):
            inner = server._mcp_server
            await inner.run(read, write, inner.create_initialization_options())

    return Starlette(routes=[WebSocketRoute("/ws", endpoint)])


if __name__ == "__main__":
    build().run()
