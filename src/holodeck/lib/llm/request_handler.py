"""The way that every request to a model takes in a run of a test case."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from holodeck.lib.llm.errors import status_error

Headers = Sequence[tuple[bytes, bytes]]
"""Names and values, in order; a name may occur more than once."""


@dataclass(frozen=True)
class StreamedResponse:
    """The response to a request; its body arrives piece by piece."""

    status: int
    headers: Headers
    body: AsyncIterator[bytes]
    reason: bytes = b""

    async def read(self) -> bytes:
        """Return the whole body."""
        return b"".join([piece async for piece in self.body])


async def in_pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    """Yield a body that is known."""
    for piece in pieces:
        yield piece


Send = Callable[[bytes], AbstractAsyncContextManager[StreamedResponse]]
"""Sends a request with that body on to the model."""


class RequestHandler(Protocol):
    """Answers requests to a model: itself, or with what the model answers.

    There is one for each run of a case and kind of work, whether the requests come from our own
    client or through the tap. It is called on one event loop, which may be that of the tap.
    """

    @property
    def sends_on(self) -> bool:
        """Whether it may send a request on to the model."""
        ...

    @property
    def has_refused(self) -> bool:
        """Whether a request got no answer, so that the case is an error whatever follows."""
        ...

    def answer(
        self, method: str, path: str, body: bytes, send: Send
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        """Yield the response to a request; `path` is relative to the base URL, with the query."""
        ...


@dataclass(frozen=True)
class HandlerChain:
    """Asks a handler, and what that one sends on, the next."""

    first: RequestHandler
    second: RequestHandler

    @property
    def sends_on(self) -> bool:
        """Whether both may send a request on."""
        return self.first.sends_on and self.second.sends_on

    @property
    def has_refused(self) -> bool:
        """Whether either did not answer a request."""
        return self.first.has_refused or self.second.has_refused

    def answer(
        self, method: str, path: str, body: bytes, send: Send
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        """Yield the response to a request; see `RequestHandler`."""

        def send_on(body: bytes) -> AbstractAsyncContextManager[StreamedResponse]:
            return self.second.answer(method, path, body, send)

        return self.first.answer(method, path, body, send_on)


AGENT = "agent"
"""The kind of work of the agent under test; other kinds are those of judges and so on."""
_handlers: ContextVar[Mapping[str, RequestHandler]] = ContextVar(
    "holodeck_request_handlers", default=MappingProxyType({})
)


def request_handler(kind: str = AGENT) -> RequestHandler | None:
    """Return what answers the requests of that kind of work here; None leaves them to the model."""
    return _handlers.get().get(kind)


@contextmanager
def answering_requests(handlers: Mapping[str, RequestHandler]) -> Iterator[None]:
    """Let the handlers answer the requests of their kinds of work within the block."""
    token = _handlers.set({**_handlers.get(), **handlers})
    try:
        yield
    finally:
        _handlers.reset(token)


def answer_with(
    handler: RequestHandler | None, method: str, path: str, body: bytes, send: Send
) -> AbstractAsyncContextManager[StreamedResponse]:
    """Return the response to a request as the handler answers it; without one, it is sent on."""
    return send(body) if handler is None else handler.answer(method, path, body, send)


def needs_model() -> bool:
    """Whether requests of the agent may reach a model here."""
    handler = request_handler()
    return handler is None or handler.sends_on


async def answer_json(
    kind: str, body: Mapping[str, Any], compute: Callable[[], Awaitable[Mapping[str, Any]]]
) -> bytes:
    """Return the response to a chat completion request that is not sent by our own client.

    `compute` asks the model; the handler of the kind of work may answer instead. Raises
    RequestError for a response that is an error, and what `compute` raises.
    """

    @asynccontextmanager
    async def send(_: bytes) -> AsyncIterator[StreamedResponse]:
        body = in_pieces(json.dumps(await compute()).encode())
        yield StreamedResponse(200, [(b"content-type", b"application/json")], body)

    handler, request = request_handler(kind), json.dumps(body).encode()
    async with answer_with(handler, "POST", "/chat/completions", request, send) as response:
        answer = await response.read()
    if response.status != 200:
        raise status_error(response.status, {}, answer)
    return answer
