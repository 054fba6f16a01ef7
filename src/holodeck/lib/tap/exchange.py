"""A request of an agent to a model and its response, and what a handler is that answers it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from holodeck.lib.tap.upstreams import Upstream

Headers = Sequence[tuple[bytes, bytes]]
"""Names and values, in order; a name may occur more than once."""

_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer"
    b" transfer-encoding upgrade".split()
)


@dataclass(frozen=True)
class Request:
    """A request that an agent sent to a model, read to its end."""

    channel: str
    """The id of the channel that it came through, which says whose request it is."""
    upstream: Upstream
    """The server that the agent means."""
    method: str
    path: str
    """The path below the base URL of the server, with the query: `/chat/completions`."""
    headers: Headers
    body: bytes


@dataclass(frozen=True)
class TappedResponse:
    """The response to a request; its body arrives piece by piece.

    The body raises UpstreamError if it breaks off.
    """

    status: int
    headers: Headers
    body: AsyncIterator[bytes]
    reason: bytes = b""


class Handler(Protocol):
    """Answers requests, by itself or by asking another handler.

    The response is valid inside of the context. Leaving it early means that the client is gone.
    """

    def __call__(self, request: Request) -> AbstractAsyncContextManager[TappedResponse]:
        """Return the response; what goes wrong before it begins is a response, too."""
        ...


class UpstreamError(Exception):
    """A response broke off; the agent's client must notice."""


def end_to_end(headers: Headers) -> Headers:
    """Return the headers without those that concern one connection only."""
    named = {
        option.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for option in value.split(b",")
    }
    dropped = _HOP_BY_HOP | named
    return [(name, value) for name, value in headers if name.lower() not in dropped]


def header(headers: Headers, name: bytes) -> str | None:
    """Return the value of a header; None if it is missing."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), None)
