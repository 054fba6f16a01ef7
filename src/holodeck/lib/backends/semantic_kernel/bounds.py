"""What the client libraries are told about answers: how large they may be, also once they are
decoded, and how their headers set the pace.

They read whatever comes. A hook sees every answer of theirs before its body, be they built on httpx
or on httpx2, whose answers are alike.
"""

import functools
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

from holodeck.lib.chat.http import Decoder, TooLarge, too_large
from holodeck.lib.chat.rate_limits import apply_rate_limits
from holodeck.lib.limiter import Limiter

current_limiter: ContextVar[Limiter | None] = ContextVar("holodeck_limiter", default=None)
"""Whose slot the running request has."""

HEADERS = {"Accept-Encoding": "identity"}
"""A small compressed answer can be a huge one; one that is compressed all the same is decoded here,
where it is bounded, and not by the library."""


def client_options(most_bytes: int) -> dict[str, Any]:
    """What any client is to be made with, so that reading an answer ends at so many bytes."""

    async def bound(response: Any) -> None:
        limiter = current_limiter.get()
        if limiter is not None:
            apply_rate_limits(limiter, response.headers)
        coding = response.headers.pop("content-encoding", "identity").lower()
        decoder = None if coding == "identity" else Decoder(coding, most_bytes)
        length = response.headers.get("content-length", "")
        if length.isdigit() and int(length[:16]) > most_bytes:
            raise TooLarge(too_large(most_bytes))
        response.stream = _bounded(response.stream, most_bytes, decoder)

    return {"headers": HEADERS, "event_hooks": {"response": [bound]}}


def _bounded(stream: Any, most_bytes: int, decoder: Decoder | None) -> Any:
    """The stream, decoded; it raises TooLarge once more than so many bytes came."""
    own = next(kind for kind in type(stream).__mro__ if kind.__name__ == "AsyncByteStream")
    return _bounded_kind(own)(stream, most_bytes, decoder)


@functools.cache
def _bounded_kind(own: type) -> Any:
    """A bounded stream on top of a library's own class, which the library insists on."""

    class Bounded(own):  # type: ignore[misc]  # only known when it is there
        def __init__(self, stream: Any, most_bytes: int, decoder: Decoder | None) -> None:
            self._stream = stream
            self._most_bytes = most_bytes
            self._decoder = decoder

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = self._most_bytes
            async for piece in self._stream:
                left -= len(piece)
                if left < 0:
                    raise TooLarge(too_large(self._most_bytes))
                yield piece if self._decoder is None else self._decoder.feed(piece)
            if self._decoder is not None:
                self._decoder.end()

        async def aclose(self) -> None:
            await self._stream.aclose()

    return Bounded
