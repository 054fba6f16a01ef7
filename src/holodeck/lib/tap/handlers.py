"""The handler that notes what passes, and the responses of the tap itself."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

from holodeck.lib.tap.channel import TappedExchange
from holodeck.lib.tap.exchange import Handler, Request, TappedResponse, header


class ExchangeRecorder:
    """Notes what passes between the agent and another handler.

    Args:
        answer: The next handler.
        open_exchange: Returns the exchange that a request begins.
    """

    def __init__(self, answer: Handler, open_exchange: Callable[[Request], TappedExchange]) -> None:
        self._answer = answer
        self._open_exchange = open_exchange

    @asynccontextmanager
    async def __call__(self, request: Request) -> AsyncIterator[TappedResponse]:
        """Yield the response of the next handler."""
        exchange = self._open_exchange(request)
        asyncio.get_running_loop().call_soon(exchange.read_request)  # while the server works on it
        try:
            async with self._answer(request) as response:
                exchange.begin(response)
                async with aclosing(_record_stream(exchange, response)) as body:
                    yield replace(response, body=body)
        finally:
            exchange.end()


async def _record_stream(
    exchange: TappedExchange, response: TappedResponse
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a body; each is noted before the agent can act on it."""
    length = header(response.headers, b"content-length")
    left = int(length) if length is not None and length.isdigit() else -1
    async for piece in response.body:
        left -= len(piece)
        exchange.feed(piece, is_last=left == 0)
        yield piece
    if left != 0:
        exchange.feed(b"", is_last=True)


def error_response(status: int, code: str, message: str) -> TappedResponse:
    """Return a response of the tap itself."""
    content = error_content(code, message)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]

    async def body() -> AsyncIterator[bytes]:
        yield content

    return TappedResponse(status, headers, body())


def error_content(code: str, message: str) -> bytes:
    """Return an error as JSON, in the format of OpenAI's errors."""
    error = {"message": message, "type": "holodeck_tap_error", "param": None, "code": code}
    return json.dumps({"error": error}).encode()
