"""Wire formats of chat completions: request bodies, and the responses of OpenAI and Anthropic."""

import json
import math
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holodeck.lib.llm.endpoint import drop_none, sampling
from holodeck.lib.llm.errors import malformed_response, provider_error
from holodeck.lib.llm.model import ChatRequest, Token
from holodeck.lib.support.text import DuplicateKey, load_json
from holodeck.models.llm import LLMProvider
from holodeck.models.token_usage import TokenUsage

NOT_A_COMPLETION = "not a chat completion"
ANTHROPIC_MAX_TOKENS = 4096
"""Anthropic requires a limit; this one is sent if the configuration has none."""

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class RawToolCall:
    """A tool call as the model wrote it, with unparsed arguments."""

    id: str
    name: str
    arguments: str
    """JSON, unless the model made a mistake."""


@dataclass(frozen=True)
class Completion:
    """One response of a model."""

    text: str | None
    calls: Sequence[RawToolCall]
    usage: TokenUsage
    tokens: Sequence[Token] = ()
    """The tokens of the response with their alternatives, if the endpoint returns any."""
    is_cut: bool = False
    """Whether the response ended at the limit of tokens."""
    is_filtered: bool = False
    """Whether a content filter of the provider ended the response."""
    finish_reason: str | None = None
    """Why it ended, in the provider's words; None if it does not say."""


def to_document(completion: Completion) -> JsonObject:
    """Return the document that `parse_completion` reads the completion from."""
    message: JsonObject = {"role": "assistant", "content": completion.text}
    if completion.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in completion.calls
        ]
    usage = completion.usage
    return {
        "choices": [{"index": 0, "message": message, "finish_reason": completion.finish_reason}],
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
        },
    }


def openai_body(llm: LLMProvider, request: ChatRequest) -> JsonObject:
    """Return the body of a chat completion request."""
    if request.max_tokens is not None:
        llm = llm.model_copy(update={"max_tokens": request.max_tokens})
    response_format: JsonObject | None = {"type": "json_object"} if request.is_json else None
    if request.schema is not None:
        response_format = strict_format(request.schema)
    return drop_none(
        {
            "model": llm.name,
            "messages": list(request.messages),
            **sampling(llm, response_format),
            "logprobs": True if request.top_logprobs is not None else None,
            "top_logprobs": request.top_logprobs,
        }
    )


def parse_completion(body: bytes) -> Completion:
    """Return the completion in the body of a response. Raises RequestError."""
    document = _json_object(body)
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices:
        raise malformed_response(f"is {NOT_A_COMPLETION}: it has no choices", body)
    message = choices[0].get("message") if isinstance(choices[0], dict) else None
    if not isinstance(message, dict):
        raise malformed_response(f"is {NOT_A_COMPLETION}: its choice has no message", body)
    reason = choices[0].get("finish_reason")
    try:
        return Completion(
            _text(message),
            _tool_calls(message.get("tool_calls")),
            read_usage(document.get("usage")),
            read_tokens(choices[0].get("logprobs")),
            reason == "length",
            reason == "content_filter",
            reason if isinstance(reason, str) else None,
        )
    except TypeError as error:
        raise malformed_response(f"is {NOT_A_COMPLETION}: {error}", body) from error


def _json_object(body: bytes, what: str = NOT_A_COMPLETION) -> JsonObject:
    """Return the JSON object in a body. Raises RequestError."""
    if not body.strip():
        raise malformed_response(f"is empty, {what}")
    if body.lstrip()[:1] == b"<":
        raise malformed_response(f"is HTML, {what}", body)
    try:
        document = load_json(body)
    except RecursionError as error:
        raise malformed_response("is JSON that is nested too deep", body) from error
    except DuplicateKey as error:
        raise malformed_response(f"has a {error}", body) from error
    except ValueError as error:
        raise malformed_response(f"is not JSON, and {what}", body) from error
    if not isinstance(document, dict):
        raise malformed_response(f"is {what}", body)
    return document


def _text(message: JsonObject) -> str | None:
    content = message.get("content")
    if content is None:
        refusal = message.get("refusal")
        return refusal if isinstance(refusal, str) else None
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [part.get("text", "") if isinstance(part, dict) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("its content is not text")
    return "".join(map(str, texts))


def _tool_calls(calls: Any) -> list[RawToolCall]:
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise TypeError("its tool calls are not a list")
    return [_tool_call(call) for call in calls]


def _tool_call(call: Any) -> RawToolCall:
    function = call.get("function", {}) if isinstance(call, dict) else ()
    function = {} if function is None else function
    if not isinstance(function, dict):
        raise TypeError("one of its tool calls is not an object")
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments)
    values = [call.get("id"), function.get("name"), arguments]
    if not all(value is None or isinstance(value, str) for value in values):
        raise TypeError("one of its tool calls holds a value that is not text")
    return RawToolCall(*(value or "" for value in values))


def read_usage(usage: Any) -> TokenUsage:
    """Return the counts of a response; zero without them. Raises TypeError."""
    if usage is None:
        return TokenUsage()
    if not isinstance(usage, dict):
        raise TypeError("its usage is not an object")
    counts = []
    for name in ("prompt_tokens", "completion_tokens"):
        count = usage.get(name)
        if count is not None and not isinstance(count, int):
            raise TypeError(f"the {name} of its usage are not a number")
        counts.append(max(0, count or 0))
    return TokenUsage.of(*counts)


def read_tokens(logprobs: Any) -> tuple[Token, ...]:
    """Return the tokens in a choice's `logprobs`; none if the endpoint returned none."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    entries = content if isinstance(content, list) else []
    return tuple(_token(entry if isinstance(entry, dict) else {}) for entry in entries)


def _token(entry: JsonObject) -> Token:
    alternatives = map(_probability, entry.get("top_logprobs") or ())
    probability, text = _probability(entry), entry.get("token")
    return Token(
        text if isinstance(text, str) else "",
        None if probability is None else probability[1],
        tuple(alternative for alternative in alternatives if alternative is not None),
    )


def _probability(entry: Any) -> tuple[str, float] | None:
    if not isinstance(entry, dict):
        return None
    token, logprob = entry.get("token"), entry.get("logprob")
    if isinstance(token, str) and isinstance(logprob, int | float) and logprob <= 0:
        return token, math.exp(logprob)
    return None


def anthropic_body(llm: LLMProvider, request: ChatRequest) -> JsonObject:
    """Return the body of a request to Anthropic's Messages API.

    The API enforces no schema, so the system message asks for it.
    """
    system = [message["content"] for message in request.messages if message["role"] == "system"]
    if request.schema is not None:
        system.append(f"Answer with JSON only, by this schema: {json.dumps(request.schema)}")
    return drop_none(
        {
            "model": llm.name,
            "messages": [
                {**message, "content": [_anthropic_part(part) for part in content]}
                if isinstance(content := message["content"], list)
                else message
                for message in request.messages
                if message["role"] != "system"
            ],
            "system": "\n\n".join(system) or None,
            "max_tokens": request.max_tokens or llm.max_tokens or ANTHROPIC_MAX_TOKENS,
            "temperature": llm.temperature,
            "top_p": llm.top_p,
        }
    )


def _anthropic_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part of a message, an image as Anthropic's API takes it."""
    if part.get("type") != "image_url":
        return part
    url = part["image_url"]["url"]
    kind, comma, data = url.removeprefix("data:").partition(";base64,")
    if not comma:
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def parse_anthropic_message(body: bytes) -> Completion:
    """Return the completion in a response of the Messages API. Raises RequestError."""
    document = _json_object(body, "not a message")
    content = document.get("content")
    if not isinstance(content, list):
        raise malformed_response("is not a message: it has no content", body)
    texts = [part["text"] for part in content if isinstance(part, dict) and "text" in part]
    if not all(isinstance(text, str) for text in texts):
        raise malformed_response("is not a message: its content is not text", body)
    return Completion(
        "".join(texts),
        (),
        read_token_usage(document.get("usage")),
        is_cut=document.get("stop_reason") == "max_tokens",
        is_filtered=document.get("stop_reason") == "refusal",
    )


def read_token_usage(usage: Any) -> TokenUsage:
    """Return the counts of a mapping or object, under any provider's names; a missing one is 0."""

    def count(*names: str) -> int:
        for name in names:
            value = usage.get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)
            if isinstance(value, int) and value > 0:
                return value
        return 0

    return TokenUsage.of(
        count("prompt_tokens", "input_tokens"), count("completion_tokens", "output_tokens")
    )


def strict_format(schema: Mapping[str, Any]) -> JsonObject:
    """Return the `response_format` for a schema: strict if no object may hold further keys.

    Strict mode requires that every object names all its keys and requires them. A schema with an
    open object is sent unchanged.
    """
    try:
        closed = _close_objects(schema)
    except _OpenObjectError:
        closed = None
    is_strict = isinstance(closed, dict) and closed.get("type") == "object"
    sent = closed if is_strict else dict(schema)
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": is_strict, "schema": sent},
    }


class _OpenObjectError(Exception):
    """An object that may hold any key."""


_UNSUPPORTED_KEYWORDS = frozenset({"title", "default", "examples", "$schema"})


def _close_objects(value: Any) -> Any:
    """Return the schema with every object closed. Raises _OpenObjectError."""
    if isinstance(value, list):
        return [_close_objects(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    closed: JsonObject = {}
    for key, part in value.items():
        if key in {"properties", "$defs", "definitions"} and isinstance(part, Mapping):
            # names, not keywords
            closed[key] = {name: _close_objects(schema) for name, schema in part.items()}
        elif key not in _UNSUPPORTED_KEYWORDS:
            closed[key] = part if key in {"enum", "const", "required"} else _close_objects(part)
    if value.get("type") != "object":
        return closed
    if "properties" not in closed or value.get("additionalProperties") not in (None, False):
        raise _OpenObjectError
    return {**closed, "additionalProperties": False, "required": list(closed["properties"])}


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
    _usage: TokenUsage = field(default_factory=TokenUsage)
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
    chunk = _json_object(event)
    if "error" in chunk and "choices" not in chunk:
        raise provider_error(event)
    return chunk
