"""How much a tap adds to a request of an agent to its model.

The same request goes to a server directly and through a tap, in turn, on connections that stay
open, so that both are measured on the same machine at the same time. The client is a bare socket;
the server answers at once, in a process of its own.
"""

import asyncio
import json
import time
from dataclasses import dataclass
from statistics import median
from urllib.parse import urlsplit

from lab import NotCounted
from loopback import server, stats
from measure import busy_s

from holodeck.lib.tap.channel import Channel
from holodeck.lib.tap.exchange import find_upstreams
from holodeck.lib.tap.tap import Tap

WARM_UP = 50
BODY = json.dumps(
    {"model": "some-model", "messages": [{"role": "user", "content": "Where is order 7? " * 50}]}
).encode()


@dataclass(frozen=True)
class Tapped:
    """Medians of the same request, directly and through a tap."""

    direct_ms: float
    tapped_ms: float
    added_ms: float
    """The median of the differences."""
    pairs: int
    others: float
    """Cores that other processes took meanwhile."""


class Client:
    """One connection that sends the same request again and again."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(f"{url}/chat/completions")
        self._address = parts.hostname, parts.port
        head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
        self._request = head.encode() + BODY

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._address)

    async def ask(self) -> float:
        """Return how many milliseconds the response took."""
        started = time.perf_counter()
        self._writer.write(self._request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise NotCounted(f"not counted: the response is {head!r}")
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        await self._reader.readexactly(length)
        return (time.perf_counter() - started) * 1000

    def close(self) -> None:
        self._writer.close()


async def ask_both(url: str, requests: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of each direct request, and of each through the tap."""
    tap = Tap(find_upstreams({"OPENAI_BASE_URL": url}))
    await tap.start()
    channel = tap.open_channel("unused")
    direct, tapped = Client(url), Client(f"{channel.url}/openai/v1")
    try:
        await direct.open()
        await tapped.open()
        return await in_turn(channel, direct, tapped, requests)
    finally:
        direct.close()
        tapped.close()
        await tap.close()


async def in_turn(
    channel: Channel, direct: Client, tapped: Client, requests: int
) -> tuple[list[float], list[float]]:
    with channel.turn() as turn:
        pairs = [(await direct.ask(), await tapped.ask()) for _ in range(WARM_UP + requests)]
    usages = [request.token_usage for request in turn.requests]
    if turn.problem or len(usages) != len(pairs) or None in usages:
        raise NotCounted(f"not counted: the tap did not see every request: {turn.problem}")
    one, other = zip(*pairs[WARM_UP:], strict=True)
    return list(one), list(other)


def measure_tap(requests: int) -> Tapped:
    """Send so many requests each way. Raises NotCounted."""
    with server(latency_ms=0) as url:
        machine, own, started = busy_s(), time.process_time(), time.monotonic()
        direct, tapped = asyncio.run(ask_both(url, requests))
        ours = time.process_time() - own + stats(url)["cpu_s"]
        others = (busy_s() - machine - ours) / (time.monotonic() - started)
    added = median(b - a for a, b in zip(direct, tapped, strict=True))
    return Tapped(median(direct), median(tapped), added, requests, max(0.0, others))
