"""Tools for models without native tool calls: a grammar lets them say a call or an answer.

The rules, because a small model cannot stop by itself:
- One call at a time.
- A small model (see `is_small`) gets tools until the first result after a user's message; then it
  can only answer, in one sentence. A larger one may call on.
- A call that was already made since the user's last message is not made again; the model is asked
  to answer from what it knows (`chat.reply_to`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holodeck.errors import BackendSessionError

JsonObject = dict[str, Any]

_MOST_ITEMS = 16
_MOST_DEPTH = 12
_UNENFORCED = frozenset({"$defs", "definitions", "$schema", "title", "default", "examples"})


def bound_schema(schema: Mapping[str, Any], most_characters: int) -> JsonObject:
    """A schema whose strings and arrays end, so that a small model cannot run on for ever.

    References are replaced by what they name; something that contains itself ends in any value
    after some levels. Patterns that llama.cpp cannot hold are left out, as it would do itself but
    not silently. Raises BackendSessionError for bounds that no value meets: llama.cpp would take
    all memory to look for one.
    """
    return _Bounds(schema, most_characters).applied(schema, _MOST_DEPTH)


class _Bounds:
    def __init__(self, root: Mapping[str, Any], most_characters: int) -> None:
        self._root = root
        self._most_characters = most_characters

    def applied(self, schema: Any, depth: int) -> JsonObject:
        if not isinstance(schema, Mapping) or depth == 0:
            return {}
        if "$ref" in schema:
            return self.applied(self._referred(schema["$ref"]), depth - 1)
        found = {key: value for key, value in schema.items() if key not in _UNENFORCED}
        for key in ("anyOf", "oneOf", "prefixItems"):
            if key in found:
                found[key] = [self.applied(one, depth - 1) for one in found[key]]
        for one in found.pop("allOf", []):
            found = {**self.applied(one, depth - 1), **found}
        if "items" in found:
            found["items"] = self.applied(found["items"], depth - 1)
        if "properties" in found:
            properties = found["properties"].items()
            found["properties"] = {key: self.applied(one, depth - 1) for key, one in properties}
            found["additionalProperties"] = False
        return self._limited(found)

    def _limited(self, schema: JsonObject) -> JsonObject:
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if not _holds_pattern(schema.get("pattern", "")):
            del schema["pattern"]
        if "string" in kinds and not {"enum", "const", "pattern", "format"} & set(schema):
            _limit(schema, "minLength", "maxLength", self._most_characters)
        if "array" in kinds:
            _limit(schema, "minItems", "maxItems", _MOST_ITEMS)
        return schema

    def _referred(self, reference: str) -> Any:
        found: Any = self._root
        for part in reference.removeprefix("#").strip("/").split("/"):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found


def _limit(schema: JsonObject, low: str, high: str, most: int) -> None:
    least = schema.get(low, 0)
    if least > schema.get(high, least):
        raise BackendSessionError(
            f"a schema asks for {low} {least} and {high} {schema[high]}, which no value meets"
        )
    schema[high] = max(least, min(schema.get(high, most), most))


def _holds_pattern(pattern: str) -> bool:
    if not pattern:
        return True
    inner = pattern[1:-1]
    anchored = pattern.startswith("^") and pattern.endswith("$")
    return anchored and not any(part in inner for part in ("\\", "^", "$", "(?"))


@dataclass(frozen=True)
class ToolResult:
    """What a tool returned for which arguments."""

    tool: str
    arguments: JsonObject
    result: str


@dataclass
class PromptTurn:
    """What the user said, what the tools returned, and what the model answered."""

    question: str = ""
    facts: list[ToolResult] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    def messages(self, small: bool) -> list[JsonObject]:
        asked = {"role": "user", "content": _asked(self, small)}
        return [asked, *({"role": "assistant", "content": text} for text in self.answers)]


@dataclass(frozen=True)
class PromptConversation:
    """The system's text and at least one turn; the last one waits for its answer."""

    instructions: str
    turns: list[PromptTurn]
    calls: int
    """How many tool calls there were."""

    @classmethod
    def of(cls, messages: Sequence[Mapping[str, Any]]) -> "PromptConversation":
        """Read OpenAI-shaped messages; words beside a tool call are left out."""
        instructions: list[str] = []
        turns = [PromptTurn()]
        calls: dict[str, tuple[str, JsonObject]] = {}
        for message in messages:
            role, text = message["role"], _text(message.get("content"))
            if role in {"system", "developer"}:
                instructions.append(text)
            elif role == "user":
                turns.append(PromptTurn(text))
            elif role == "tool":
                turns[-1].facts.append(_fact(message, text, calls))
            elif message.get("tool_calls"):
                calls |= _calls(message["tool_calls"])
            else:
                turns[-1].answers.append(text)
        said = [turn for turn in turns if turn != PromptTurn()] or turns
        return cls("\n\n".join(instructions), said, len(calls))


def _fact(
    message: Mapping[str, Any], text: str, calls: Mapping[str, tuple[str, JsonObject]]
) -> ToolResult:
    name = message.get("name") or "a tool"
    name, arguments = calls.get(message.get("tool_call_id", ""), (name, {}))
    return ToolResult(name, arguments, text)


def _calls(calls: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, JsonObject]]:
    return {
        call["id"]: (call["function"]["name"], _arguments(call["function"]["arguments"]))
        for call in calls
    }


def _arguments(text: str | None) -> JsonObject:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {"": text}
    return found if isinstance(found, dict) else {"": found}


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    kinds = {part.get("type") for part in content} - {"text"}
    if kinds:
        raise BackendSessionError(
            f"a local model reads text, and a message holds {', '.join(map(str, sorted(kinds)))}"
        )
    return "".join(part["text"] for part in content)


def _asked(turn: PromptTurn, small: bool) -> str:
    if not turn.facts:
        return turn.question
    return _asked_small(turn) if small else _asked_large(turn)


def _asked_small(turn: PromptTurn) -> str:
    """The wording of many that makes a 135M model repeat what a tool returned most often."""
    results = "; ".join(fact.result for fact in turn.facts)
    return f"{turn.question}\n\nThe answer is: {results}\n\nSay this answer in one sentence."


def _asked_large(turn: PromptTurn) -> str:
    facts = [f"{one.tool} {json.dumps(one.arguments)}: {one.result}" for one in turn.facts]
    listed = facts[0] if len(facts) == 1 else "".join(f"\n- {fact}" for fact in facts)
    return f"Read this: {listed}\n\nUse what you read to answer: {turn.question}"


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
    conversation = PromptConversation.of(messages)
    schema = _answer_schema(settings.response_format)
    instructions = [conversation.instructions] if conversation.instructions else []
    if settings.small and conversation.turns[-1].facts:
        tools = ()
    if tools:
        instructions.append(tools_prompt(tools))
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


def tools_prompt(tools: Sequence[Mapping[str, Any]]) -> str:
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
    return _object(
        tool={"const": function["name"]}, arguments=bound_schema(parameters, _MOST_ARGUMENT)
    )


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
            return bound_schema(schema, _MOST_ANSWER)
        case {"type": "json_object"}:
            return {"type": "object"}
        case None | {"type": "text"}:
            return None
    raise BackendSessionError(f"the response format {response_format!r} is not known")
