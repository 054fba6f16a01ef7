"""What the fake model server receives and what it is told to answer."""

import json as jsonlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Arguments = Mapping[str, Any] | str
"""Tool arguments: a mapping, or the raw text a model might have written (valid JSON or not)."""

Fault = Literal["reset", "close", "truncate", "half_open", "hang", "drip", "cut_chunk"]
"""How a connection goes wrong:

reset      the connection is reset before any answer
close      the connection is closed in good order before any answer
truncate   half of the body arrives, then the connection is closed
half_open  half of the body arrives, then nothing
hang       nothing ever arrives
drip       the body arrives one byte at a time, `drip_s` apart
cut_chunk  the body is announced in chunks, and the connection is closed in the middle of one
"""

Dialect = Literal["openai", "responses", "anthropic", "ollama", "plain"]


@dataclass(frozen=True)
class ToolCall:
    """One tool call of a reply; without an id each call gets one of its own."""

    name: str
    arguments: Arguments = field(default_factory=dict)
    id: str | None = None

    @property
    def raw_arguments(self) -> str:
        """The arguments as the text that goes over the wire."""
        if isinstance(self.arguments, str):
            return self.arguments
        return jsonlib.dumps(self.arguments)


@dataclass(frozen=True)
class Reply:
    """One answer of the server; `body` or `json` replace the model's answer byte for byte."""

    content: str | None = None
    tool_calls: Sequence[ToolCall | tuple[Any, ...]] = ()
    usage: tuple[int, int] | None = (10, 5)
    """Prompt and completion tokens; None leaves usage out."""
    latency_s: float = 0.0
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    json: Any = None
    fault: Fault | None = None
    drip_s: float = 0.02
    finish_reason: str | None = None
    """None means what a model would say: tool calls or the end of its turn."""

    @property
    def calls(self) -> list[ToolCall]:
        return [c if isinstance(c, ToolCall) else ToolCall(*c) for c in self.tool_calls]

    @property
    def fixed_body(self) -> bytes | None:
        """The bytes to send whatever the dialect; None when a model answer is to be built."""
        if self.body is not None:
            return self.body
        return None if self.json is None else jsonlib.dumps(self.json).encode()


@dataclass(frozen=True)
class Request:
    """One request as it arrived."""

    number: int
    """Counts from 1 in order of arrival."""
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    raw: bytes
    body: Any
    """The parsed JSON, or None when there was none."""
    received_at: float
    """On `time.monotonic`."""
    in_flight: int
    """Requests being served when this one arrived, itself included."""
    earlier: Sequence[dict[str, Any]] = ()
    """Messages that the server kept of the response which this request continues."""

    @property
    def dialect(self) -> Dialect:
        if self.path.endswith("/chat/completions"):
            return "openai"
        if self.path.endswith("/responses"):
            return "responses"
        if self.path.endswith("/v1/messages"):
            return "anthropic"
        return "ollama" if self.path == "/api/chat" else "plain"

    @property
    def wants_embeddings(self) -> bool:
        return self.path.endswith("/embeddings") or self.path == "/api/embed"

    @property
    def embedded_texts(self) -> list[str]:
        """The texts that vectors are wanted of."""
        given = self.body.get("input", []) if isinstance(self.body, dict) else []
        return [given] if isinstance(given, str) else list(given)

    @property
    def streams(self) -> bool:
        """Whether the answer is wanted piece by piece; Ollama does so unless told not to."""
        if not isinstance(self.body, dict):
            return False
        return bool(self.body.get("stream", self.dialect == "ollama"))

    @property
    def model(self) -> str:
        return str(self.body.get("model", "")) if isinstance(self.body, dict) else ""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation so far, as in chat completions, whatever the dialect."""
        if not isinstance(self.body, dict):
            return []
        if self.dialect == "responses":
            return [*self.earlier, *messages_of_input(self.body.get("input", []))]
        messages = list(self.body.get("messages", []))
        if self.dialect == "anthropic":  # what Claude Code adds of its own is no conversation
            said = [message for message in messages if message.get("role") != "system"]
            return [one for message in said for one in messages_of_blocks(message)]
        return messages

    @property
    def prompt(self) -> str:
        """The text of the last user message, "" when there is none."""
        users = [m for m in self.messages if m.get("role") == "user"]
        return text_of(users[-1].get("content")) if users else ""

    @property
    def system(self) -> str:
        """The system text, wherever the dialect puts it."""
        if self.dialect == "anthropic" and "system" in self.body:
            return text_of(self.body["system"])
        if self.dialect == "responses" and self.body.get("instructions"):
            return str(self.body["instructions"])
        said = [m for m in self.messages if m.get("role") in {"system", "developer"}]
        return "\n".join(text_of(m.get("content")) for m in said)

    @property
    def tools(self) -> list[str]:
        """The names of the tools on offer."""
        offered = self.body.get("tools") or [] if isinstance(self.body, dict) else []
        return [t.get("function", t)["name"] for t in offered]

    @property
    def tool_results(self) -> list[str]:
        """What tools answered so far in this conversation, in order."""
        return [text_of(m.get("content")) for m in self.messages if m.get("role") == "tool"]


def messages_of_input(given: Any) -> list[dict[str, Any]]:
    """The input of the Responses API as messages of chat completions."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return [message_of_item(item) for item in given]


def messages_of_blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A message of Anthropic's API as messages of chat completions: each tool result is its own."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    results = [block for block in blocks if block.get("type") == "tool_result"]
    rest = [block for block in blocks if block.get("type") != "tool_result"]
    split: list[dict[str, Any]] = [
        {
            "role": "tool",
            "tool_call_id": block.get("tool_use_id"),
            "content": text_of(block.get("content")),
        }
        for block in results
    ]
    return split if results and not rest else [*split, {**message, "content": rest or content}]


def message_of_item(item: Mapping[str, Any]) -> dict[str, Any]:
    match item.get("type"):
        case "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case "function_call_output":
            output = text_of(item["output"])
            return {"role": "tool", "tool_call_id": item["call_id"], "content": output}
    return {"role": item.get("role"), "content": text_of(item.get("content"))}


def text_of(content: Any) -> str:
    """The plain text of a message content: text, a list of blocks, or nothing."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(str(b.get("text", "")) for b in content if isinstance(b, dict))
