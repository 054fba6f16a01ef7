"""Streamed chat completions: server-sent events, and the completion that their pieces make up."""

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from holodeck.lib.llm.completion import (
    NOT_A_COMPLETION,
    Completion,
    JsonObject,
    RawToolCall,
    read_usage,
)
from holodeck.lib.llm.errors import malformed_response, provider_error
from holodeck.lib.support.text import DuplicateKey, load_json
from holodeck.models.token_usage import TokenUsage

END = b"[DONE]"


async def read_events(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of each server-sent event in a body that arrives in pieces."""
    buffer = b""
    data: list[bytes] = []
    async for piece in pieces:
        *lines, buffer = (buffer + piece).split(b"\n")
        for line in (line.rstrip(b"\r") for line in lines):
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []
    if buffer.startswith(b"data:"):
        data.append(buffer[5:].strip())
    if data:
        yield b"\n".join(data)


@dataclass
class _OpenCall:
    """A tool call of which not all pieces have come."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass
class StreamedCompletion:
    """A completion that comes in pieces."""

    is_over: bool = False
    """Whether the provider has said that it is complete."""
    _text: list[str] = field(default_factory=list)
    _calls: dict[int, _OpenCall] = field(default_factory=dict)
    """By index."""
    _usage: TokenUsage = field(default_factory=TokenUsage.zero)
    _finish_reason: str | None = None

    def add(self, event: bytes) -> str:
        """Add the data of an event, and return the text in it. Raises RequestError."""
        if event.strip() == END:
            self.is_over = True
            return ""
        chunk = _chunk(event)
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else {}
        delta = choice.get("delta") if isinstance(choice, dict) else None
        try:
            if chunk.get("usage") is not None:
                self._usage = read_usage(chunk["usage"])
            if not isinstance(delta, dict):
                return ""
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
            self._add_calls(delta.get("tool_calls"))
        except TypeError as error:
            raise malformed_response(f"is {NOT_A_COMPLETION}: {error}", event) from error
        text = delta.get("content") or delta.get("refusal") or ""
        if not isinstance(text, str):
            raise malformed_response(f"is {NOT_A_COMPLETION}: its content is not text", event)
        self._text.append(text)
        return text

    def result(self) -> Completion:
        """Return what has come. Raises RequestError if the stream broke off."""
        if not self.is_over and self._finish_reason is None:
            raise malformed_response("ended before it was complete")
        calls = [RawToolCall(call.id, call.name, call.arguments) for call in self._calls.values()]
        return Completion(
            "".join(self._text) or None,
            calls,
            self._usage,
            is_cut=self._finish_reason == "length",
            is_filtered=self._finish_reason == "content_filter",
            finish_reason=self._finish_reason,
        )

    def _add_calls(self, pieces: Any) -> None:
        """Add pieces of tool calls; those of one call have its index. Raises TypeError."""
        if pieces is None:
            return
        if not isinstance(pieces, list):
            raise TypeError("its tool calls are not a list")
        for piece in pieces:
            function = piece.get("function") or {} if isinstance(piece, dict) else None
            if not isinstance(function, dict):
                raise TypeError("one of its tool calls is not an object")
            index = piece.get("index")
            call_id = piece.get("id") or ""
            if not isinstance(index, int):  # some servers send whole calls, without an index
                index = len(self._calls)
            call = self._calls.setdefault(index, _OpenCall())
            values = (call_id, function.get("name") or "", function.get("arguments") or "")
            if not all(isinstance(value, str) for value in values):
                raise TypeError("one of its tool calls holds a value that is not text")
            call.id, call.name = call.id or values[0], call.name or values[1]
            call.arguments += values[2]


def _chunk(event: bytes) -> JsonObject:
    """Return the JSON object of an event. Raises RequestError, also for the provider's error."""
    try:
        chunk = load_json(event)
    except (ValueError, RecursionError, DuplicateKey) as error:
        raise malformed_response(f"is not JSON, and {NOT_A_COMPLETION}", event) from error
    if not isinstance(chunk, dict):
        raise malformed_response(f"is {NOT_A_COMPLETION}", event)
    if "error" in chunk and "choices" not in chunk:
        raise provider_error(event)
    return chunk
