"""Wire formats of chat completions: request bodies, and the responses of OpenAI and Anthropic."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holodeck.lib.llm.endpoint import drop_none
from holodeck.lib.llm.errors import malformed_response
from holodeck.lib.llm.model import ChatRequest
from holodeck.models.llm import LLMProvider
from holodeck.models.token_usage import TokenUsage

NOT_A_COMPLETION = "not a chat completion"


@dataclass(frozen=True)
class RawToolCall:
    """A tool call as the model wrote it."""

    id: str
    name: str
    arguments: str
    """JSON, or what the model took for it."""


@dataclass(frozen=True)
class Completion:
    """One answer of a model."""

    text: str | None
    calls: Sequence[RawToolCall]
    usage: TokenUsage
    token_probabilities: Mapping[str, float] | None = None
    """How likely each first token was, 0 to 1, where the endpoint says so."""
    is_cut: bool = False
    """Whether the answer ended at the limit of tokens."""


def parse_completion(body: bytes) -> Completion:
    """The completion that an answer holds. Raises ChatFault."""
    document = _document(body)
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices:
        raise malformed_response(f"is {NOT_A_COMPLETION}: it has no choices", body)
    message = choices[0].get("message") if isinstance(choices[0], dict) else None
    if not isinstance(message, dict):
        raise malformed_response(f"is {NOT_A_COMPLETION}: its choice has no message", body)
    try:
        return Completion(
            _text(message),
            _calls(message),
            _usage(document.get("usage")),
            token_probabilities(choices[0].get("logprobs")),
            choices[0].get("finish_reason") == "length",
        )
    except TypeError as error:
        raise malformed_response(f"is {NOT_A_COMPLETION}: {error}", body) from error


def _document(body: bytes) -> dict[str, Any]:
    if not body.strip():
        raise malformed_response(f"is empty, {NOT_A_COMPLETION}")
    if body.lstrip()[:1] == b"<":
        raise malformed_response(f"is HTML, {NOT_A_COMPLETION}", body)
    try:
        document = json.loads(body)
    except RecursionError as error:
        raise malformed_response("is JSON that is nested too deep", body) from error
    except ValueError as error:
        raise malformed_response(f"is not JSON, and {NOT_A_COMPLETION}", body) from error
    if not isinstance(document, dict):
        raise malformed_response(f"is {NOT_A_COMPLETION}", body)
    return document


def _text(message: dict[str, Any]) -> str | None:
    content = message.get("content")
    if content is None:
        refusal = message.get("refusal")
        return refusal if isinstance(refusal, str) else None
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [part.get("text", "") if isinstance(part, dict) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("its content is no text")
    return "".join(map(str, texts))


def _calls(message: dict[str, Any]) -> list[RawToolCall]:
    calls = message.get("tool_calls")
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise TypeError("its tool calls are no list")
    return [_call(one) for one in calls]


def _call(one: Any) -> RawToolCall:
    function = one.get("function") if isinstance(one, dict) else None
    function = {} if function is None and isinstance(one, dict) else function
    if not isinstance(function, dict):
        raise TypeError("a tool call of it is none")
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments)
    values = [one.get("id"), function.get("name"), arguments]
    if not all(value is None or isinstance(value, str) for value in values):
        raise TypeError("a tool call of it holds something else than text")
    call_id, name, written = (value or "" for value in values)
    return RawToolCall(call_id, name, written)


def _usage(usage: Any) -> TokenUsage:
    if usage is None:
        return TokenUsage.zero()
    if not isinstance(usage, dict):
        raise TypeError("its usage is none")
    read, written = (_tokens(usage, name) for name in ("prompt_tokens", "completion_tokens"))
    return TokenUsage.of(read, written)


def _tokens(usage: dict[str, Any], name: str) -> int:
    value = usage.get(name)
    if value is not None and not isinstance(value, int):
        raise TypeError(f"its usage counts {name} with something else than a number")
    return max(0, value or 0)


def token_probabilities(logprobs: Any) -> Mapping[str, float] | None:
    """How likely each first token was, from the `logprobs` of a choice; None if it tells none."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    first = content[0] if isinstance(content, list) and content else None
    if not isinstance(first, dict):
        return None
    found: dict[str, float] = {}
    for one in [*(first.get("top_logprobs") or ()), first]:
        token, logprob = (one.get("token"), one.get("logprob")) if isinstance(one, dict) else (0, 0)
        if isinstance(token, str) and isinstance(logprob, int | float) and logprob <= 0:
            found.setdefault(token, math.exp(logprob))
    return found or None


MOST_TOKENS = 4096
"""The API wants a limit; this one where the configuration has none."""


def anthropic_body(llm: LLMProvider, question: ChatRequest) -> dict[str, Any]:
    """A question as a request; the format of the answer is asked for in words."""
    system = [one["content"] for one in question.messages if one["role"] == "system"]
    if question.schema is not None:
        system.append(f"Answer with JSON only, by this schema: {json.dumps(question.schema)}")
    return drop_none(
        {
            "model": llm.name,
            "messages": [dict(one) for one in question.messages if one["role"] != "system"],
            "system": "\n\n".join(system) or None,
            "max_tokens": question.max_tokens or llm.max_tokens or MOST_TOKENS,
            "temperature": llm.temperature,
            "top_p": llm.top_p,
        }
    )


def anthropic_completion(body: bytes) -> Completion:
    """The completion that an answer holds. Raises ChatFault."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise malformed_response("is not JSON, and not a message", body) from error
    content = document.get("content") if isinstance(document, dict) else None
    if not isinstance(content, list):
        raise malformed_response("is not a message: it has no content", body)
    said = [one["text"] for one in content if isinstance(one, dict) and "text" in one]
    texts = [text for text in said if isinstance(text, str)]
    if len(texts) < len(said):
        raise malformed_response("is not a message: its content is no text", body)
    usage = document.get("usage")
    return Completion(
        "".join(texts),
        (),
        TokenUsage.of(_token_count(usage, "input_tokens"), _token_count(usage, "output_tokens")),
        is_cut=document.get("stop_reason") == "max_tokens",
    )


def _token_count(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if isinstance(value, int) and value > 0 else 0


JsonObject = dict[str, Any]

_UNSPOKEN = frozenset({"title", "default", "examples", "$schema"})


def strict_format(schema: Mapping[str, Any]) -> JsonObject:
    """The `response_format` that asks for a schema: strict where it leaves no key open.

    Strict means that every object names all its keys and requires them; an object that may hold
    any key cannot be asked for so, and the schema goes along as it is.
    """
    strict = _strict(schema)
    wanted = {"name": "answer", "strict": strict is not None, "schema": strict or dict(schema)}
    return {"type": "json_schema", "json_schema": wanted}


def _strict(schema: Any) -> JsonObject | None:
    """The schema with every object closed; None where an object is open."""
    try:
        closed = _closed(schema)
    except _OpenObjectError:
        return None
    return closed if isinstance(closed, dict) and closed.get("type") == "object" else None


class _OpenObjectError(Exception):
    """An object that may hold any key."""


def _closed(value: Any) -> Any:
    if isinstance(value, list):
        return [_closed(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: _closed_part(key, one) for key, one in value.items() if key not in _UNSPOKEN}
    if value.get("type") != "object":
        return found
    if "properties" not in found or value.get("additionalProperties") not in (None, False):
        raise _OpenObjectError
    return {**found, "additionalProperties": False, "required": list(found["properties"])}


def _closed_part(key: str, value: Any) -> Any:
    if key in {"properties", "$defs", "definitions"} and isinstance(value, Mapping):
        return {name: _closed(one) for name, one in value.items()}  # names, not keywords
    return value if key in {"enum", "const", "required"} else _closed(value)
