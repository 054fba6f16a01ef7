"""A model server with a fixed latency, in a process of its own, that counts what it is asked.

    python benchmarks/fake_llm.py --port 0 --latency-ms 200

prints `READY port`. It answers chat completions with `OK: ` and the last user message; a request
that offers tools gets a call of the first one, until it brings what came of the call.
`/_stats` tells what was counted since the last `/_reset`: requests, the most at once, and bleed
(requests whose messages carry the marks of two different cases, so two cases got mixed up).
`/_config?latency_ms=0&most_at_once=10` resets, too, and says how to answer from now on: what is
left out is as at the start. Above `most_at_once` requests are refused: 429, Retry-After: 1.
`--fault-percent 2` answers so many of the requests with 503 or breaks the connection, by a seed.
"""

import argparse
import asyncio
import json
import random
import re
import signal
import time
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

MARK = re.compile(rb"case-\d{5}")
FIRST_LINE = re.compile(rb"(\w+) (\S+)")
LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Mode:
    """How chat completions are answered."""

    latency_ms: float
    most_at_once: int | None = None
    """None takes any number."""

    def changed(self, query: str) -> "Mode":
        given = dict(parse_qsl(query, strict_parsing=True)) if query else {}
        if unknown := given.keys() - vars(self):
            raise ValueError(f"not known: {', '.join(sorted(unknown))}")
        mode = replace(self, latency_ms=float(given.get("latency_ms", self.latency_ms)))
        most = given.get("most_at_once")
        return mode if most is None else replace(mode, most_at_once=int(most))


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
        self.refused = 0
        self.first_request_at: float | None = None
        self.last_answer_at: float | None = None

    def arrived(self, body: bytes) -> None:
        if self.first_request_at is None:
            self.first_request_at = time.monotonic()
        self.requests += 1
        self.bleed += len(set(MARK.findall(body))) > 1

    def began(self) -> None:
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)

    def ended(self) -> None:
        self.in_flight -= 1
        self.last_answer_at = time.monotonic()

    def as_json(self) -> bytes:
        """The counts, and this process's own CPU seconds so far."""
        return json.dumps(vars(self) | {"cpu_s": time.process_time()}).encode()


class Client(asyncio.Protocol):
    """One connection, kept alive; one request at a time."""

    transport: asyncio.Transport

    def __init__(self, desk: "Desk") -> None:
        self._desk = desk
        self._stats = desk.stats
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

    def _respond(self, target: bytes, body: bytes) -> None:
        path, _, query = target.decode().partition("?")
        if path == "/_stats":
            self._send(200, self._stats.as_json())
        elif path in {"/_reset", "/_config"}:
            self._desk.set_up(query if path == "/_config" else None)
            self._send(200, b"{}")
        elif path.endswith("/chat/completions"):
            self._stats.arrived(body)
            self._take(completion(body))
        elif path.endswith("/responses"):
            self._stats.arrived(body)
            self._take(response(body))
        else:
            self._send(404, b'{"error": {"message": "no such path"}}')

    def _take(self, answer: bytes) -> None:
        mode = self._desk.mode
        if mode.most_at_once is not None and self._stats.in_flight >= mode.most_at_once:
            self._stats.refused += 1
            self._send(429, b'{"error": {"message": "too many at once"}}', "Retry-After: 1\r\n")
            return
        self._stats.began()
        loop = asyncio.get_running_loop()
        loop.call_later(mode.latency_ms / 1000, self._complete, answer, self._desk.era)

    def _complete(self, answer: bytes, era: int) -> None:
        if era != self._desk.era:  # asked before the last reset, by somebody who has given up
            self.transport.abort()
            return
        self._stats.ended()
        fault = self._desk.faults.next()
        self._stats.faults += fault is not None
        if fault == "reset":
            self.transport.abort()
        elif fault == "503":
            self._send(503, b'{"error": {"message": "busy"}}')
        else:
            self._send(200, answer)

    def _send(self, status: int, body: bytes, more: str = "") -> None:
        if not self.transport.is_closing():
            head = f"HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\n{more}"
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


class Desk:
    """What all connections share."""

    def __init__(self, mode: Mode, faults: Faults) -> None:
        self._first_mode = self.mode = mode
        self.faults = faults
        self.stats = Stats()
        self.era = 0

    def set_up(self, query: str | None) -> None:
        """Count from zero; answer as at the start but for what the query says, if there is one."""
        if query is not None:
            self.mode = self._first_mode.changed(query)
        self.stats.reset()
        self.era += 1


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


VERDICT = json.dumps({"reason": "It does.", "score": 5, "answer": "yes"})
"""What is said where JSON is wanted: judges ask so."""
YES = {"token": "yes", "logprob": -0.01, "top_logprobs": [{"token": "yes", "logprob": -0.01}]}


def completion(body: bytes) -> bytes:
    """A chat completion that calls the first tool, judges kindly, or repeats what the user said."""
    request: dict[str, Any] = json.loads(body)
    messages = request["messages"]
    said = [text_of(m["content"]) for m in messages if m["role"] == "user"]
    calls = request.get("tools") and messages[-1]["role"] == "user"
    text = VERDICT if "response_format" in request else f"OK: {said[-1]}"
    message = call_of(request["tools"][0], said[-1]) if calls else answer(text)
    usage = {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28}
    reason = "tool_calls" if calls else "stop"
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": reason}
    if request.get("logprobs"):
        choice["logprobs"] = {"content": [YES]}
    document = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": request["model"],
        "choices": [choice],
        "usage": usage,
    }
    return json.dumps(document).encode()


def response(body: bytes) -> bytes:
    """What the Responses API says to the last user message; without tools."""
    request: dict[str, Any] = json.loads(body)
    asked = request["input"]
    messages = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    said = [m["content"] for m in messages if m.get("role") == "user"]
    text = {"type": "output_text", "text": f"OK: {text_of(said[-1])}", "annotations": []}
    message = {"id": "msg-1", "type": "message", "role": "assistant", "status": "completed"}
    document = {
        "id": "resp-1",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": "completed",
        "model": request["model"],
        "output": [message | {"content": [text]}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 20,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 8,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 28,
        },
    }
    return json.dumps(document).encode()


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def call_of(tool: dict[str, Any], said: str) -> dict[str, Any]:
    """A message that calls a tool with what was said as its first argument."""
    function = tool["function"]
    first = next(iter(function["parameters"]["properties"]))
    arguments = json.dumps({first: said})
    called = {"name": function["name"], "arguments": arguments}
    call = {"id": f"call-{abs(hash(said))}", "type": "function", "function": called}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def text_of(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


async def serve(port: int, desk: Desk) -> None:
    """Serve until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(lambda: Client(desk), "127.0.0.1", port, backlog=2048)
    print(f"READY {server.sockets[0].getsockname()[1]}", flush=True)
    await stop.wait()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="A fake model server with a fixed latency.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--latency-ms", type=float, default=200)
    parser.add_argument("--fault-percent", type=float, default=0)
    options = parser.parse_args()
    desk = Desk(Mode(options.latency_ms), Faults(options.fault_percent / 100))
    asyncio.run(serve(options.port, desk))


if __name__ == "__main__":
    main()
