"""Tools for models without native tool calls: a grammar lets them say a call or an answer.

The rules, because a small model cannot stop by itself:
- One call at a time.
- A small model (see `is_small`) gets tools until the first result after a user's message; then it
  can only answer, in one sentence. A larger one may call on.
- A call that was already made since the user's last message is not made again; the model is asked
  to answer from what it knows (`chat.reply_to`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holodeck.errors import BackendSessionError
from holodeck.lib.local_models.conversation import Conversation
from holodeck.lib.local_models.tool_schema import bounded

JsonObject = dict[str, Any]

_MOST_ANSWER = 4000
_MOST_ARGUMENT = 256
_SMALL_BYTES = 256_000_000


@dataclass(frozen=True)
class ToolChoice:
    """The model wants a tool called."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True)
class Answer:
    """The model answers the user."""

    text: str


@dataclass(frozen=True)
class ChatSettings:
    """How to ask; None leaves a value to llama.cpp."""

    temperature: float | None = 0.0
    max_tokens: int | None = 1000
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    response_format: Mapping[str, Any] | None = None
    """As OpenAI takes it: `json_schema`, `json_object` or `text`."""
    small: bool = False
    """Whether the model needs the rules for small ones."""

    def sampling(self) -> JsonObject:
        names = ("temperature", "max_tokens", "top_p", "seed")
        chosen = {name: getattr(self, name) for name in names}
        chosen["stop"] = list(self.stop) or None
        return {name: value for name, value in chosen.items() if value is not None}


def is_small(weights: Path) -> bool:
    """Whether a model is so small that it can call at most one tool per user message."""
    return weights.stat().st_size < _SMALL_BYTES


def chat_request(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    settings: ChatSettings = ChatSettings(),
) -> JsonObject:
    """The request for a conversation in OpenAI's shape, with tool calls and results in it.

    What comes back is JSON for `parse_choice` if `offers_tools` says so, else the answer itself.
    """
    conversation = Conversation.of(messages)
    schema = _answer_schema(settings.response_format)
    instructions = [conversation.instructions] if conversation.instructions else []
    if settings.small and conversation.turns[-1].facts:
        tools = ()
    if tools:
        instructions.append(tools_text(tools))
        schema = tool_choice_schema(tools, schema)
    system = [{"role": "system", "content": "\n\n".join(instructions)}] if instructions else []
    said = [one for turn in conversation.turns for one in turn.messages(settings.small)]
    request: JsonObject = {"messages": [*system, *said], **settings.sampling()}
    if schema is not None:
        name = _WITH_TOOLS if tools else _WITHOUT_TOOLS
        json_schema = {"name": name, "schema": schema}
        request["response_format"] = {"type": "json_schema", "json_schema": json_schema}
    return request


_WITH_TOOLS = "tool_or_answer"
_WITHOUT_TOOLS = "answer"


def offers_tools(request: Mapping[str, Any]) -> bool:
    """Whether a request of `chat_request` lets the model choose a tool."""
    schema = request.get("response_format", {}).get("json_schema", {})
    return bool(schema.get("name") == _WITH_TOOLS)


def tools_text(tools: Sequence[Mapping[str, Any]]) -> str:
    """What the system's text has to say about tools."""
    lines = [f"{_about(function)}: {_example(function)}" for function in map(_function, tools)]
    return "\n".join(
        [
            "Reply with one line of JSON, one of:",
            *lines,
            'Talk to the user, when no tool is needed: {"respond": "..."}',
        ]
    )


def tool_choice_schema(
    tools: Sequence[Mapping[str, Any]], answer: JsonObject | None = None
) -> JsonObject:
    """The schema of one call of one of the tools, or of an answer.

    `answer` is the schema of the answer; None means a text.
    """
    text = {"type": "string", "maxLength": _MOST_ANSWER}
    choices = [_call_schema(_function(tool)) for tool in tools]
    return {"anyOf": [*choices, _object(respond=text if answer is None else answer)]}


def parse_choice(text: str) -> ToolChoice | Answer:
    """What the model chose. Raises BackendSessionError for anything but whole, valid JSON."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BackendSessionError(
            f"the local model's choice of a tool is broken off or no JSON ({error});"
            f" raise max_tokens if it was cut; it said: {text[-200:]!r}"
        ) from error
    match found:
        case {"tool": str(name), "arguments": dict(arguments)}:
            return ToolChoice(name, arguments)
        case {"respond": str(answer)}:
            return Answer(answer)
        case {"respond": answer}:
            return Answer(json.dumps(answer, ensure_ascii=False))
    raise BackendSessionError(
        f"the local model chose neither a tool nor an answer; it said: {text[:200]!r}"
    )


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """The function of a definition, be it wrapped as OpenAI wants it or bare."""
    function: Mapping[str, Any] = tool.get("function", tool)
    return function


def _call_schema(function: Mapping[str, Any]) -> JsonObject:
    parameters = {"type": "object", "properties": {}, **(function.get("parameters") or {})}
    return _object(tool={"const": function["name"]}, arguments=bounded(parameters, _MOST_ARGUMENT))


def _object(**properties: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _about(function: Mapping[str, Any]) -> str:
    text = " ".join((function.get("description") or function["name"]).split())
    return text.rstrip(".:")


def _example(function: Mapping[str, Any]) -> str:
    properties = (function.get("parameters") or {}).get("properties", {})
    return json.dumps({"tool": function["name"], "arguments": dict.fromkeys(properties, "...")})


def _answer_schema(response_format: Mapping[str, Any] | None) -> JsonObject | None:
    """The schema of the answer itself; None means any text."""
    match response_format:
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return bounded(schema, _MOST_ANSWER)
        case {"type": "json_object"}:
            return {"type": "object"}
        case None | {"type": "text"}:
            return None
    raise BackendSessionError(f"the response format {response_format!r} is not known")
