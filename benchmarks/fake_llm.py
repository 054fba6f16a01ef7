"""A model server with a fixed latency, in a process of its own, that counts what it is asked.

    python benchmarks/fake_llm.py --port 0 --latency-ms 200

prints `READY port`. It answers chat completions with `OK: ` and the last user message.
`/_stats` tells what was counted since the last `/_reset`: requests, the most at once, and bleed
(requests whose messages carry the marks of two different cases, so two cases got mixed up).
`--fault-percent 2` answers so many of the requests with 503 or breaks the connection, by a seed.
"""

import argparse
import asyncio
import json
import random
import re
import signal
import time
from typing import Any

MARK = re.compile(rb"case-\d{5}")
FIRST_LINE = re.compile(rb"(\w+) (\S+)")
LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)


class Stats:
    """What was counted since the last reset."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.requests = 0
        self.in_flight = 0
        self.peak = 0
        self.connections = 0
        self.bleed = 0
        self.faults = 0
        self.first_request_at: float | None = None

    def arrived(self, body: bytes) -> None:
        if self.first_request_at is None:
            self.first_request_at = time.monotonic()
        self.requests += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        self.bleed += len(set(MARK.findall(body))) > 1

    def as_json(self) -> bytes:
        """The counts, and this process's own CPU seconds so far."""
        return json.dumps(vars(self) | {"cpu_s": time.process_time()}).encode()


class Client(asyncio.Protocol):
    """One connection, kept alive; one request at a time."""

    transport: asyncio.Transport

    def __init__(self, stats: Stats, latency_s: float, faults: "Faults") -> None:
        self._stats = stats
        self._latency_s = latency_s
        self._faults = faults
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._stats.connections += 1

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (found := whole_request(self._buffer)) is not None:
            path, body, self._buffer = found
            self._respond(path, body)

    def _respond(self, path: bytes, body: bytes) -> None:
        if path == b"/_stats":
            self._send(200, self._stats.as_json())
        elif path == b"/_reset":
            self._stats.reset()
            self._send(200, b"{}")
        elif path.endswith(b"/chat/completions"):
            self._stats.arrived(body)
            loop = asyncio.get_running_loop()
            loop.call_later(self._latency_s, self._complete, completion(body))
        else:
            self._send(404, b'{"error": {"message": "no such path"}}')

    def _complete(self, answer: bytes) -> None:
        self._stats.in_flight -= 1
        fault = self._faults.next()
        self._stats.faults += fault is not None
        if fault == "reset":
            self.transport.abort()
        elif fault == "503":
            self._send(503, b'{"error": {"message": "busy"}}')
        else:
            self._send(200, answer)

    def _send(self, status: int, body: bytes) -> None:
        if not self.transport.is_closing():
            head = f"HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\n"
            self.transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


class Faults:
    """Which requests go wrong, the same ones in every run."""

    def __init__(self, share: float, seed: int = 1) -> None:
        self._share = share
        self._random = random.Random(seed)

    def next(self) -> str | None:
        if self._random.random() >= self._share:
            return None
        return self._random.choice(("503", "reset"))


def whole_request(buffer: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Path, body and what is left over; None when the request is not all there."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    line, length = FIRST_LINE.match(buffer), LENGTH.search(buffer[:end])
    if line is None:
        raise ValueError(f"not an HTTP request: {buffer[:80]!r}")
    stop = end + 4 + (int(length[1]) if length else 0)
    if len(buffer) < stop:
        return None
    return line[2], buffer[end + 4 : stop], buffer[stop:]


def completion(body: bytes) -> bytes:
    """A chat completion that repeats the last user message."""
    request: dict[str, Any] = json.loads(body)
    said = [text_of(m["content"]) for m in request["messages"] if m["role"] == "user"]
    message = {"role": "assistant", "content": f"OK: {said[-1]}"}
    usage = {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28}
    document = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage,
    }
    return json.dumps(document).encode()


def text_of(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


async def serve(port: int, latency_s: float, fault_share: float = 0.0) -> None:
    """Serve until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    stats, faults, stop = Stats(), Faults(fault_share), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(
        lambda: Client(stats, latency_s, faults), "127.0.0.1", port, backlog=2048
    )
    print(f"READY {server.sockets[0].getsockname()[1]}", flush=True)
    await stop.wait()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="A fake model server with a fixed latency.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--latency-ms", type=float, default=200)
    parser.add_argument("--fault-percent", type=float, default=0)
    options = parser.parse_args()
    asyncio.run(serve(options.port, options.latency_ms / 1000, options.fault_percent / 100))


if __name__ == "__main__":
    main()
