"""The way that every request of an agent to its model takes in a run of a test case."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

Headers = Sequence[tuple[bytes, bytes]]
"""Names and values, in order; a name may occur more than once."""


@dataclass(frozen=True)
class StreamedResponse:
    """The response to a request; its body arrives piece by piece."""

    status: int
    headers: Headers
    body: AsyncIterator[bytes]
    reason: bytes = b""


Send = Callable[[bytes], AbstractAsyncContextManager[StreamedResponse]]
"""Sends a request with that body on to the model."""


class RequestHandler(Protocol):
    """Answers the requests of an agent to its model: itself, or with what the model answers.

    There is one for each run of a case, whether its requests come from our own client or through
    the tap. It is called on one event loop, which may be that of the tap.
    """

    def answer(
        self, path: str, body: bytes, send: Send
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        """Yield the response to a POST of `body` to `path`, which is relative to the base URL."""
        ...


request_handler: ContextVar[RequestHandler | None] = ContextVar(
    "holodeck_request_handler", default=None
)
"""The handler of the run of a case; None leaves its requests to the model alone."""


@contextmanager
def answering_requests(handler: RequestHandler | None) -> Iterator[None]:
    """Let the handler answer the requests of the agent within the block."""
    token = request_handler.set(handler)
    try:
        yield
    finally:
        request_handler.reset(token)
