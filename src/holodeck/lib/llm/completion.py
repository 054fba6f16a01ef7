"""Completions of models, and the bodies of requests for them: of OpenAI and Anthropic."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holodeck.lib.llm.endpoint import drop_none, sampling
from holodeck.lib.llm.model import ChatRequest, Token
from holodeck.models.cases.messages import tool_call
from holodeck.models.llm import LLMProvider
from holodeck.models.token_usage import TokenUsage

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
            tool_call(call.id, call.name, call.arguments) for call in completion.calls
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
