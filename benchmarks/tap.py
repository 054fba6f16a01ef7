"""How much a tap adds to a request of an agent to its model.

    python benchmarks/tap.py [--requests 500] [--check]

The same request goes to the local server directly and through a tap, in turn, on connections that
stay open, so that both are measured on the same machine at the same time. The client is a bare
socket; the server answers at once, in a process of its own. `--check` exits with 1 if the median
difference is more than the goal.
"""

import argparse
import asyncio
import json
import sys
import time
from statistics import median
from urllib.parse import urlsplit

from loopback import server

from holodeck.lib.tap.channel import Channel
from holodeck.lib.tap.tap import Tap
from holodeck.lib.tap.upstreams import find_upstreams

GOAL_MS = 2.0
WARM_UP = 50
BODY = json.dumps(
    {"model": "some-model", "messages": [{"role": "user", "content": "Where is order 7? " * 50}]}
).encode()


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
            raise SystemExit(f"the response is {head!r}")
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        await self._reader.readexactly(length)
        return (time.perf_counter() - started) * 1000

    def close(self) -> None:
        self._writer.close()


async def measure(url: str, requests: int) -> tuple[list[float], list[float]]:
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
    seen = [one.token_usage for one in turn.facts.requests]
    if turn.facts.problem or len(seen) != len(pairs) or None in seen:
        raise SystemExit(f"the tap did not see every request: {turn.facts.problem}")
    one, other = zip(*pairs[WARM_UP:], strict=True)
    return list(one), list(other)


def main() -> int:
    parser = argparse.ArgumentParser(description="what a tap adds to a request")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with server(latency_ms=0) as url:
        direct, tapped = asyncio.run(measure(url, options.requests))
    added = median(b - a for a, b in zip(direct, tapped, strict=True))
    print(f"directly        {median(direct):6.2f} ms (median of {len(direct)})")
    print(f"through the tap {median(tapped):6.2f} ms")
    print(f"added           {added:6.2f} ms (goal: {GOAL_MS:g})")
    return int(options.check and added > GOAL_MS)


if __name__ == "__main__":
    sys.exit(main())
