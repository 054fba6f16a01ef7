"""Requests of conversations with tools for models that have no tool calls of their own.

A grammar limits the answer to one tool call or one text. Small models need further rules, because
they cannot stop by themselves:

- A small model (see `is_small`) gets tools until the first result after a user's message; then it
  can only answer, in one sentence. A larger one may make further calls.
- A model that repeats a call since the user's last message is asked to answer from what it knows
  (`chat.reply_to`).
- Tool calls are not shown as messages: a small model that sees its own call makes another one, and
  so on. What the tools returned is part of the question instead.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holodeck.errors import BackendSessionError
from holodeck.lib.support.json_schemas import object_schema
from holodeck.models.cases.messages import Message

JsonObject = dict[str, Any]

_MAX_ANSWER = 4000
_MAX_ARGUMENT = 256
_MAX_ITEMS = 16
_MAX_DEPTH = 12
_SMALL_BYTES = 256_000_000
_UNENFORCED = frozenset({"$defs", "definitions", "$schema", "title", "default", "examples"})
_WITH_TOOLS = "tool_or_answer"
_WITHOUT_TOOLS = "answer"


@dataclass(frozen=True)
class ToolChoice:
    """The model calls a tool."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True)
class Answer:
    """The model answers the user."""

    text: str


@dataclass(frozen=True)
class ChatSettings:
    """Sampling settings and rules; None leaves a value to llama.cpp."""

    temperature: float | None = 0.0
    max_tokens: int | None = 1000
    top_p: float | None = None
    response_format: Mapping[str, Any] | None = None
    """As in OpenAI's API: `json_schema`, `json_object` or `text`."""
    small: bool = False
    """Whether the model needs the rules for small ones."""

    def sampling(self) -> JsonObject:
        names = ("temperature", "max_tokens", "top_p")
        chosen = {name: getattr(self, name) for name in names}
        return {name: value for name, value in chosen.items() if value is not None}


def is_small(weights: Path) -> bool:
    """Whether a model is so small that it can call at most one tool per user message."""
    return weights.stat().st_size < _SMALL_BYTES


@dataclass(frozen=True)
class ToolOutput:
    """What a tool returned for which arguments."""

    tool: str
    arguments: JsonObject
    text: str


@dataclass
class PromptTurn:
    """A user message, what the tools returned, and the model's answers."""

    user_text: str = ""
    results: list[ToolOutput] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    def messages(self, small: bool) -> list[JsonObject]:
        question = {"role": "user", "content": self._question(small)}
        return [question, *({"role": "assistant", "content": text} for text in self.answers)]

    def _question(self, small: bool) -> str:
        if not self.results:
            return self.user_text
        if small:
            # Of several wordings, this one makes a 135M model repeat the result most often.
            results = "; ".join(result.text for result in self.results)
            return (
                f"{self.user_text}\n\nThe answer is: {results}\n\nSay this answer in one sentence."
            )
        lines = [
            f"{result.tool} {json.dumps(result.arguments)}: {result.text}"
            for result in self.results
        ]
        listed = lines[0] if len(lines) == 1 else "".join(f"\n- {line}" for line in lines)
        return f"Read this: {listed}\n\nUse what you read to answer: {self.user_text}"


@dataclass(frozen=True)
class PromptConversation:
    """The system message and at least one turn, the last of which awaits its answer."""

    instructions: str
    turns: list[PromptTurn]
    calls: int
    """The number of tool calls."""

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "PromptConversation":
        """Read messages in OpenAI's shape; text beside a tool call is dropped."""
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
                unknown: tuple[str, JsonObject] = (message.get("name") or "a tool", {})
                name, arguments = calls.get(message.get("tool_call_id", ""), unknown)
                turns[-1].results.append(ToolOutput(name, arguments, text))
            elif message.get("tool_calls"):
                for call in message["tool_calls"]:
                    function = call["function"]
                    calls[call["id"]] = (function["name"], _arguments(function["arguments"]))
            else:
                turns[-1].answers.append(text)
        filled = [turn for turn in turns if turn != PromptTurn()] or turns
        return cls("\n\n".join(instructions), filled, len(calls))


def _arguments(text: str | None) -> JsonObject:
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        return {"": text}
    return arguments if isinstance(arguments, dict) else {"": arguments}


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    kinds = {part.get("type") for part in content} - {"text"}
    if kinds:
        raise BackendSessionError(
            "a local model reads text only, and a message contains"
            f" {', '.join(map(str, sorted(kinds)))}"
        )
    return "".join(part["text"] for part in content)


def chat_request(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    settings: ChatSettings = ChatSettings(),
) -> JsonObject:
    """Return the request for a conversation in OpenAI's shape, with tool calls and results.

    If `offers_tools`, the answer is JSON for `parse_choice`; otherwise it is the answer itself.
    """
    conversation = PromptConversation.of(messages)
    schema = _answer_schema(settings.response_format)
    instructions = [conversation.instructions] if conversation.instructions else []
    if settings.small and conversation.turns[-1].results:
        tools = ()
    if tools:
        instructions.append(tools_prompt(tools))
        schema = tool_choice_schema(tools, schema)
    system = [{"role": "system", "content": "\n\n".join(instructions)}] if instructions else []
    prompt = [message for turn in conversation.turns for message in turn.messages(settings.small)]
    request: JsonObject = {"messages": [*system, *prompt], **settings.sampling()}
    if schema is not None:
        name = _WITH_TOOLS if tools else _WITHOUT_TOOLS
        json_schema = {"name": name, "schema": schema}
        request["response_format"] = {"type": "json_schema", "json_schema": json_schema}
    return request


def offers_tools(request: Mapping[str, Any]) -> bool:
    """Whether a request of `chat_request` lets the model call a tool."""
    schema = request.get("response_format", {}).get("json_schema", {})
    return bool(schema.get("name") == _WITH_TOOLS)


def tools_prompt(tools: Sequence[Mapping[str, Any]]) -> str:
    """Return the instructions about tools for the system message."""
    lines = []
    for function in map(_function, tools):
        about = " ".join((function.get("description") or function["name"]).split()).rstrip(".:")
        properties = (function.get("parameters") or {}).get("properties", {})
        example = {"tool": function["name"], "arguments": dict.fromkeys(properties, "...")}
        lines.append(f"{about}: {json.dumps(example)}")
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
    """Return the schema of one call of one of the tools, or of an answer.

    `answer` is the schema of the answer; None stands for a text.
    """
    choices = []
    for function in map(_function, tools):
        parameters = {"type": "object", "properties": {}, **(function.get("parameters") or {})}
        arguments = bound_schema(parameters, _MAX_ARGUMENT)
        choices.append(object_schema(tool={"const": function["name"]}, arguments=arguments))
    text = {"type": "string", "maxLength": _MAX_ANSWER}
    return {"anyOf": [*choices, object_schema(respond=text if answer is None else answer)]}


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the function of a definition, with or without OpenAI's wrapper."""
    function: Mapping[str, Any] = tool.get("function", tool)
    return function


def _answer_schema(response_format: Mapping[str, Any] | None) -> JsonObject | None:
    """Return the schema of the answer itself; None for any text."""
    match response_format:
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return bound_schema(schema, _MAX_ANSWER)
        case {"type": "json_object"}:
            return {"type": "object"}
        case None | {"type": "text"}:
            return None
    raise BackendSessionError(f"unknown response format {response_format!r}")


def parse_choice(text: str) -> ToolChoice | Answer:
    """Parse the model's choice. Raises BackendSessionError for anything but complete JSON."""
    try:
        choice = json.loads(text)
    except ValueError as error:
        raise BackendSessionError(
            f"the local model's choice of a tool is incomplete or not JSON ({error});"
            f" raise max_tokens if it was cut off; it said: {text[-200:]!r}"
        ) from error
    match choice:
        case {"tool": str(name), "arguments": dict(arguments)}:
            return ToolChoice(name, arguments)
        case {"respond": str(answer)}:
            return Answer(answer)
        case {"respond": answer}:
            return Answer(json.dumps(answer, ensure_ascii=False))
    raise BackendSessionError(
        f"the local model chose neither a tool nor an answer; it said: {text[:200]!r}"
    )


def bound_schema(schema: Mapping[str, Any], max_characters: int) -> JsonObject:
    """Limit the strings and arrays of a schema, so that a small model cannot go on forever.

    References are replaced by their definitions; a type inside itself becomes anything after some
    levels. Patterns that llama.cpp cannot enforce are removed; it would do so itself, with a
    message. Raises BackendSessionError for limits that no value can meet: llama.cpp would use up
    the memory searching for one.
    """
    return _SchemaBounds(schema, max_characters).apply(schema, _MAX_DEPTH)


class _SchemaBounds:
    def __init__(self, root: Mapping[str, Any], max_characters: int) -> None:
        self._root = root
        self._max_characters = max_characters

    def apply(self, schema: Any, depth: int) -> JsonObject:
        if not isinstance(schema, Mapping) or depth == 0:
            return {}
        if "$ref" in schema:
            definition: Any = self._root
            for key in schema["$ref"].removeprefix("#").strip("/").split("/"):
                definition = definition.get(key) if isinstance(definition, Mapping) else None
            return self.apply(definition, depth - 1)
        bounded = {key: value for key, value in schema.items() if key not in _UNENFORCED}
        for key in ("anyOf", "oneOf", "prefixItems"):
            if key in bounded:
                bounded[key] = [self.apply(part, depth - 1) for part in bounded[key]]
        for part in bounded.pop("allOf", []):
            bounded = {**self.apply(part, depth - 1), **bounded}
        if "items" in bounded:
            bounded["items"] = self.apply(bounded["items"], depth - 1)
        if "properties" in bounded:
            properties = bounded["properties"].items()
            bounded["properties"] = {name: self.apply(part, depth - 1) for name, part in properties}
            bounded["additionalProperties"] = False
        return self._limit(bounded)

    def _limit(self, schema: JsonObject) -> JsonObject:
        types = schema.get("type", [])
        types = [types] if isinstance(types, str) else types
        if not _is_enforceable(schema.get("pattern", "")):
            del schema["pattern"]
        if "string" in types and not {"enum", "const", "pattern", "format"} & set(schema):
            _set_maximum(schema, "minLength", "maxLength", self._max_characters)
        if "array" in types:
            _set_maximum(schema, "minItems", "maxItems", _MAX_ITEMS)
        return schema


def _set_maximum(schema: JsonObject, low: str, high: str, maximum: int) -> None:
    least = schema.get(low, 0)
    if least > schema.get(high, least):
        raise BackendSessionError(
            f"a schema has {low} {least} and {high} {schema[high]}, which no value can meet"
        )
    schema[high] = max(least, min(schema.get(high, maximum), maximum))


def _is_enforceable(pattern: str) -> bool:
    if not pattern:
        return True
    inner = pattern[1:-1]
    is_anchored = pattern.startswith("^") and pattern.endswith("$")
    return is_anchored and not any(part in inner for part in ("\\", "^", "$", "(?"))
