"""holodeck with the transport of `backend: chat` swapped for httpx 0.28: must be found too slow.

    python benchmarks/sabotage/httpx028.py test agent.yaml

Its pool looks at all connections for every request, so at 100 connections a request costs about
twenty times what it should. Whoever measures speed has to notice.
"""

import sys

import httpx

from holodeck.cli.main import main
from holodeck.lib.llm import http_client
from holodeck.lib.llm.http_connection import Response, Server

SLOW = "0.28."
SKIPPED = {"host", "content-length"}


class Pool:
    """Takes the place of our connections."""

    def __init__(self, server: Server, max_bytes: int = 0) -> None:
        del max_bytes
        self._server = server
        self._client: httpx.AsyncClient | None = None

    async def exchange(self, request: bytes) -> Response:
        head, _, body = request.partition(b"\r\n\r\n")
        lines = (line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        headers = {name: value for name, value in lines if name.lower() not in SKIPPED}
        url = f"{self._server.parts.scheme}://{self._server.authority}{self._server.target}"
        answer = await self._opened().post(url, headers=headers, content=body)
        named = {name.lower(): value for name, value in answer.headers.items()}
        return Response(answer.status_code, named, answer.content)

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            unlimited = httpx.Limits(max_connections=None, max_keepalive_connections=None)
            self._client = httpx.AsyncClient(limits=unlimited, timeout=60, trust_env=False)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


if __name__ == "__main__":
    if not httpx.__version__.startswith(SLOW):
        sys.exit(f"httpx {httpx.__version__} is not the slow one: pip install httpx==0.28.1")
    if "ConnectionPool" not in vars(http_client):
        sys.exit("the client has its connections from elsewhere; swap them there")
    vars(http_client)["ConnectionPool"] = Pool
    main()
