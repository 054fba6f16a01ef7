"""Readers of the wire formats of models: what a response says and costs, whole or in events."""

import json
import math
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from holodeck.lib.llm.completion import Completion, RawToolCall
from holodeck.lib.llm.errors import malformed_response, provider_error
from holodeck.lib.llm.model import Token
from holodeck.lib.support.text import DuplicateKey, load_json, to_text
from holodeck.models.token_usage import TokenUsage

JsonObject = Mapping[str, Any]
NOT_A_COMPLETION = "not a chat completion"


class UnreadableBody(Exception):
    """A body that is not what its path promises; the message says in what way."""


@dataclass(frozen=True)
class ReturnedResult:
    """The result of a tool, as a request tells it to the model."""

    call_id: str
    """Empty if the format has no ids."""
    name: str
    """Empty if the format names only the call."""
    result: Any
    is_error: bool | None = None
    """None if the format does not tell."""


@dataclass
class Reader:
    """Reads a response, whole or as events in order; what it read so far is in its fields."""

    text: str = ""
    """The text of the response."""
    calls: list[RawToolCall] = field(default_factory=list)
    """The tool calls that the model requested; complete once `has_all_calls`."""
    results: list[ReturnedResult] = field(default_factory=list)
    """The results of tools that the provider itself ran."""
    usage: TokenUsage | None = None
    """None if the response does not tell it, or not yet."""
    has_all_calls: bool = False

    def read_document(self, document: JsonObject) -> None:
        """Read a whole response. Raises UnreadableBody."""
        raise NotImplementedError

    def read_event(self, event: JsonObject) -> None:
        """Read the next event of a stream. Raises UnreadableBody."""
        raise NotImplementedError

    def read_done(self) -> None:
        """Note `[DONE]`, with which some streams end."""


@dataclass
class _CallInParts:
    """A call of a chat completion, of which a stream sends the arguments piece by piece."""

    id: str = ""
    name: str = ""
    arguments: str = ""
    is_custom: bool = False
    """Whether the arguments are a text and not JSON."""

    def add(self, part: JsonObject) -> None:
        is_custom = part.get("custom") is not None
        function = _object(part, "custom" if is_custom else "function")
        given = function.get("input" if is_custom else "arguments")
        self.id = self.id or _text(part, "id")
        self.name = self.name or _text(function, "name")
        self.arguments += "" if given is None else to_text(given)
        self.is_custom |= is_custom

    @property
    def whole(self) -> RawToolCall:
        arguments = json.dumps({"input": self.arguments}) if self.is_custom else self.arguments
        return RawToolCall(self.id, self.name, arguments)


@dataclass
class ChatCompletion(Reader):
    """`/chat/completions` of OpenAI, Azure and servers like them, and `/completions`."""

    finish_reason: str | None = None
    """Why the response ended, in the provider's words; None if it does not say."""
    _parts: dict[tuple[int, int], _CallInParts] = field(default_factory=dict)
    """By the indexes of the choice and of the call."""

    def read_document(self, document: JsonObject) -> None:
        self._read(document, "message")
        self.read_done()

    def read_event(self, event: JsonObject) -> None:
        if event.get("error"):
            raise UnreadableBody("its stream holds an error")
        self._read(event, "delta")

    def read_done(self) -> None:
        self.calls = [part.whole for part in self._parts.values()]
        self.has_all_calls = True

    def completion(self, usage: TokenUsage, tokens: Sequence[Token] = ()) -> Completion:
        """Return what was read, with the usage and the tokens of the text."""
        return Completion(
            self.text or (None if self.calls else ""),
            self.calls,
            usage,
            tokens,
            is_cut=self.finish_reason == "length",
            is_filtered=self.finish_reason == "content_filter",
            finish_reason=self.finish_reason,
        )

    def _read(self, document: JsonObject, key: str) -> None:
        """Read a response or an event, whose choices have a message, or a piece of it, at `key`."""
        if document.get("usage"):
            self.usage = _usage(document["usage"], "prompt_tokens", "completion_tokens")
        for choice in _objects(document, "choices"):
            message = _object(choice, key)
            self.text += _text_of_message(message)
            self._add_calls(_index(choice) or 0, message, are_whole=key == "message")
            if choice.get("finish_reason"):
                self.finish_reason = str(choice["finish_reason"])
                self.read_done()

    def _add_calls(self, choice: int, message: JsonObject, *, are_whole: bool) -> None:
        if message.get("function_call"):
            raise UnreadableBody("it holds a 'function_call', the format before 'tool_calls'")
        for at, part in enumerate(_objects(message, "tool_calls")):
            index = at if are_whole else _index(part)
            if index is None:  # some servers stream whole calls, without an index
                is_new = part.get("id") or _object(part, "function").get("name") or not self._parts
                index = len(self._parts) - (0 if is_new else 1)
            self._parts.setdefault((choice, index), _CallInParts()).add(part)


_FIELDS_OF_ALL_ITEMS = frozenset({"id", "call_id", "name", "type", "status", "output", "results"})


@dataclass
class OpenAIResponse(Reader):
    """`/responses` of OpenAI and Azure."""

    def read_document(self, document: JsonObject) -> None:
        status = document.get("status")
        if status in {"queued", "in_progress"}:
            raise UnreadableBody("it is computed in the background")
        items = list(_objects(document, "output"))
        if items or not self.calls:
            self.text, self.calls, self.results = "", [], []
        for item in items:
            self._add_item(item)
        self.usage = _usage(document.get("usage"), "input_tokens", "output_tokens")
        self.has_all_calls = True

    def read_event(self, event: JsonObject) -> None:
        kind = _text(event, "type")
        if kind == "response.output_item.done":
            self._add_item(event["item"])
        elif kind in {"response.completed", "response.incomplete", "response.failed"}:
            self.read_document(event["response"])
        elif kind == "error":
            raise UnreadableBody("its stream holds an error")

    def _add_item(self, item: JsonObject) -> None:
        kind = _text(item, "type")
        if kind == "message":
            self.text += _text_of_message(item)
        if not kind.endswith("_call"):
            return
        call_id = _text(item, "call_id") or _text(item, "id")
        name = _text(item, "name") or kind.removesuffix("_call")
        given = item.get("arguments")
        if given is None:  # a tool of the provider: each has fields of its own
            given = {key: value for key, value in item.items() if key not in _FIELDS_OF_ALL_ITEMS}
        self.calls.append(RawToolCall(call_id, name, to_text(given)))
        if kind == "mcp_call" and (item.get("output") or item.get("error")):
            problem = item.get("error")
            result = problem or item.get("output")
            self.results.append(ReturnedResult(call_id, name, result, is_error=bool(problem)))


@dataclass
class AnthropicMessage(Reader):
    """`/v1/messages` of Anthropic."""

    _blocks: dict[int, tuple[JsonObject, list[str]]] = field(default_factory=dict)
    """Blocks of a stream by their index, each with the pieces of its arguments."""
    _prompt: JsonObject = field(default_factory=dict)
    """The usage at the start of a stream."""

    def read_document(self, document: JsonObject) -> None:
        for block in _objects(document, "content"):
            self._add_block(block)
        self.usage = _anthropic_usage(document.get("usage"))
        self.has_all_calls = True

    def read_event(self, event: JsonObject) -> None:
        blocks = self._blocks
        match _text(event, "type"):
            case "message_start":
                self._prompt = event["message"].get("usage") or {}
            case "content_block_start":
                blocks[event["index"]] = (event["content_block"], [])
            case "content_block_delta":
                delta = event["delta"]
                piece = _text(delta, "partial_json") or _text(delta, "text")
                blocks[event["index"]][1].append(piece)
            case "message_delta":
                usage = event.get("usage") or {}
                known = {key: count for key, count in usage.items() if count is not None}
                self.usage = _anthropic_usage({**self._prompt, **known})
                for block, pieces in blocks.values():
                    self._add_block(block, "".join(pieces))
                blocks.clear()
                self.has_all_calls = True
            case "error":
                raise UnreadableBody("its stream holds an error")

    def _add_block(self, block: JsonObject, streamed: str = "") -> None:
        kind = _text(block, "type")
        if kind == "text":
            self.text += _text(block, "text") + streamed
        elif kind.endswith("tool_use"):
            arguments = streamed or to_text(block.get("input") or {})
            self.calls.append(RawToolCall(_text(block, "id"), _text(block, "name"), arguments))
        elif kind.endswith("tool_result"):
            self.results.append(_anthropic_result(block))


@dataclass
class OllamaChat(Reader):
    """`/api/chat` and `/api/generate` of Ollama; its events are lines of the same shape."""

    def read_document(self, document: JsonObject) -> None:
        self.read_event(document)
        self.has_all_calls = True

    def read_event(self, event: JsonObject) -> None:
        if event.get("error"):
            raise UnreadableBody("its stream holds an error")
        message = event.get("message") or {}
        self.text += _text(message, "content")
        for call in _objects(message, "tool_calls"):
            function = call.get("function") or {}
            arguments = to_text(function.get("arguments") or {})
            self.calls.append(RawToolCall(_text(call, "id"), _text(function, "name"), arguments))
        if event.get("done"):
            self.usage = _usage(event, "prompt_eval_count", "eval_count")
            self.has_all_calls = True


@dataclass
class Embeddings(Reader):
    """`/embeddings` of OpenAI and Azure, `/api/embed` of Ollama; they request no tools."""

    def read_document(self, document: JsonObject) -> None:
        usage = document.get("usage") or document
        prompt = usage.get("prompt_tokens", usage.get("prompt_eval_count"))
        self.usage = None if prompt is None else TokenUsage.of(prompt, 0)
        self.has_all_calls = True


@dataclass
class OtherRequest(Reader):
    """A request that makes no model answer a conversation: its response is not read."""

    has_all_calls: bool = True

    def read_document(self, document: JsonObject) -> None:
        """Do nothing."""

    def read_event(self, event: JsonObject) -> None:
        """Do nothing."""


def returned_results(request: JsonObject) -> Iterator[ReturnedResult]:
    """Yield the results of tools that a request holds, in order, in whatever format."""
    return (result for result, _, _ in results_in_place(request))


def results_in_place(request: JsonObject) -> Iterator[tuple[ReturnedResult, Any, str]]:
    """Yield each result of a tool, the object of the request where it stands, and its key there."""
    for message in (*_objects(request, "messages"), *_objects(request, "input", or_text=True)):
        if _text(message, "type").endswith("_call_output"):
            content = _content(message.get("output"))
            yield ReturnedResult(_text(message, "call_id"), "", content), message, "output"
        elif message.get("role") == "tool":
            name = _text(message, "tool_name") or _text(message, "name")
            call_id, content = _text(message, "tool_call_id"), _content(message.get("content"))
            yield ReturnedResult(call_id, name, content), message, "content"
        elif message.get("role") == "user" and isinstance(message.get("content"), list):
            for block in _objects(message, "content"):
                if _text(block, "type").endswith("tool_result"):
                    yield _anthropic_result(block), block, "content"


def _anthropic_result(block: JsonObject) -> ReturnedResult:
    result = _content(block.get("content"))
    return ReturnedResult(_text(block, "tool_use_id"), "", result, block.get("is_error") is True)


def _content(content: Any) -> Any:
    """Return the text of a content, which may be in parts; other content as it is."""
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        if len(texts) == len(content) and all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
    return content


def _text_of_message(message: JsonObject) -> str:
    """Return the text of a message, or of its refusal. Raises UnreadableBody."""
    content = message.get("content") or message.get("refusal")
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(_text(part, "text") for part in _objects(message, "content"))


def _usage(
    usage: Any, prompt: str, completion: str, cached: Sequence[str] = ()
) -> TokenUsage | None:
    """Return the usage; None if a half of it is missing, or if it counts no tokens.

    Tokens that were read from a cache, or written to it, are prompt.
    """
    if not isinstance(usage, Mapping) or None in (usage.get(prompt), usage.get(completion)):
        return None
    prompts = sum(_count(usage, name) for name in (prompt, *cached))
    found = TokenUsage.of(prompts, _count(usage, completion))
    return found if found.total_tokens else None


def _anthropic_usage(usage: Any) -> TokenUsage | None:
    cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
    return _usage(usage, "input_tokens", "output_tokens", cached)


def read_usage(
    document: JsonObject, prompt: str = "prompt_tokens", completion: str = "completion_tokens"
) -> TokenUsage:
    """Return the counts of a response, 0 for one that it does not tell. Raises UnreadableBody."""
    usage = _object(document, "usage")
    return TokenUsage.of(_count(usage, prompt), _count(usage, completion))


def _count(usage: JsonObject, key: str) -> int:
    """Return the tokens counted at `key`, 0 without it. Raises UnreadableBody."""
    found = usage.get(key)
    if found is not None and (not isinstance(found, int | float) or found % 1):
        raise UnreadableBody(f"the {key} of its usage are not a whole number")
    return max(0, int(found or 0))


def _objects(parent: JsonObject, key: str, *, or_text: bool = False) -> Sequence[JsonObject]:
    """Return the objects in the list at `key`, which may be missing. Raises UnreadableBody."""
    found = parent.get(key)
    if found is None or (or_text and isinstance(found, str)):
        return ()
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        raise UnreadableBody(f"its {key!r} are not a list of objects")
    return found


def _text(parent: JsonObject, key: str) -> str:
    """Return the text at `key`, "" without one. Raises UnreadableBody."""
    found = parent.get(key)
    if found is not None and not isinstance(found, str):
        raise UnreadableBody(f"its {key!r} is not text")
    return found or ""


def json_object(body: bytes | bytearray) -> JsonObject:
    """Return the JSON object in a body. Raises UnreadableBody."""
    if not body.strip():
        raise UnreadableBody("it is empty")
    if body.lstrip()[:1] == b"<":
        raise UnreadableBody("it is HTML")
    try:
        document = load_json(body)
    except RecursionError as error:
        raise UnreadableBody("its JSON is nested too deep") from error
    except ValueError as error:
        is_known = isinstance(error, DuplicateKey)
        raise UnreadableBody(f"it has a {error}" if is_known else "it is not JSON") from error
    if not isinstance(document, Mapping):
        raise UnreadableBody("it is not a JSON object")
    return document


def _object(parent: JsonObject, key: str) -> JsonObject:
    """Return the object at `key`, an empty one without it. Raises UnreadableBody."""
    found = parent.get(key)
    if found is not None and not isinstance(found, Mapping):
        raise UnreadableBody(f"its {key!r} is not an object")
    return found or {}


def _index(parent: JsonObject) -> int | None:
    found = parent.get("index")
    return found if isinstance(found, int) else None


def parse_completion(body: bytes) -> Completion:
    """Return the completion in the body of a response. Raises RequestError."""
    with _malformed(NOT_A_COMPLETION, body):
        document, reader = json_object(body), ChatCompletion()
        if not document.get("choices"):
            raise UnreadableBody("it has no choices")
        first = _objects(document, "choices")[0]
        if not isinstance(first.get("message"), Mapping):
            raise UnreadableBody("its choice has no message")
        reader.read_document(document)
        return reader.completion(read_usage(document), read_tokens(first.get("logprobs")))


@contextmanager
def _malformed(what: str, body: bytes) -> Iterator[None]:
    """Turn UnreadableBody into the RequestError of a response that is not what it promises."""
    try:
        yield
    except UnreadableBody as error:
        raise malformed_response(f"is {what}: {error}", body) from error


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


def parse_anthropic_message(body: bytes) -> Completion:
    """Return the completion in a response of the Messages API. Raises RequestError."""
    with _malformed("not a message", body):
        document, reader = json_object(body), AnthropicMessage()
        if document.get("content") is None:
            raise UnreadableBody("it has no content")
        reader.read_document(document)
        return Completion(
            reader.text,
            (),
            read_usage(document, "input_tokens", "output_tokens"),
            is_cut=document.get("stop_reason") == "max_tokens",
            is_filtered=document.get("stop_reason") == "refusal",
        )


END = b"[DONE]"


class EventLines:
    """Puts the lines of server-sent events together."""

    def __init__(self) -> None:
        self._data: list[bytes] = []

    def add(self, line: bytes) -> bytes | None:
        """Return the data of the event that a line ends; None if it ends none."""
        line = line.rstrip(b"\r")
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        if line or not self._data:
            return None
        data, self._data = b"\n".join(self._data), []
        return data


async def read_events(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of each server-sent event in a body that arrives in pieces."""
    lines, buffer = EventLines(), b""
    async for piece in pieces:
        *whole, buffer = (buffer + piece).split(b"\n")
        for event in filter(None, map(lines.add, whole)):
            yield event
    for event in filter(None, map(lines.add, (buffer, b""))):
        yield event


async def read_stream(pieces: AsyncIterable[bytes]) -> AsyncIterator[str | Completion]:
    """Yield the text of a streamed completion in pieces, and at the end the completion.

    Raises RequestError, also for the provider's error, and if the stream broke off.
    """
    reader, usage = ChatCompletion(), TokenUsage()
    async for event in read_events(pieces):
        if event.strip() == END:
            reader.read_done()
            break
        known = len(reader.text)
        with _malformed(NOT_A_COMPLETION, event):
            chunk = json_object(event)
            if chunk.get("error"):
                raise provider_error(event)
            reader.read_event(chunk)
            if chunk.get("usage") is not None:
                usage = read_usage(chunk)
        if len(reader.text) > known:
            yield reader.text[known:]
    if not reader.has_all_calls:
        raise malformed_response("ended before it was complete")
    yield reader.completion(usage)
