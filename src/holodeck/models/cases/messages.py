"""Messages in the format of chat completions, how earlier ones are written, and images of them."""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Required, TypedDict, cast

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from holodeck.lib.support.text import one_line, to_text
from holodeck.models.base import Json, Model, NonBlank, ReadPath

_MAX_NAME = 100
_ADDRESS = re.compile(r"(?!data:)\w+:")
_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)?")
_MEDIA = ("image_url", "input_audio", "file")


class Message(TypedDict, total=False):
    """A message as agents, judges, simulated users and reports have it; nobody changes one.

    A message that an agent or a script returns may have further keys, which stay as they are.
    """

    role: Required[str]
    content: Any
    """The text, a list of parts, or None; agents are given texts as earlier messages."""
    tool_calls: list[dict[str, Any]]
    """Of an assistant's message, each with `id`, `type` and `function`, and with the name of the
    `agent` that requested it if that is known."""
    function_call: dict[str, Any] | None
    """The older format of a single tool call."""
    refusal: str | None
    """What the model writes instead of `content` if it refuses."""
    tool_call_id: str
    """The call whose result the message is; its role is `tool`."""
    name: str
    unseen_tool_calls: bool
    """Whether the tool calls of the agent before this message are unknown."""
    earlier: bool
    """Whether the message is from before the conversation."""


def text_of(message: Message) -> str:
    """Return the text of a message or of its refusal; other parts appear as `[type: what]`."""
    content = message.get("content")
    if content is None:
        refusal = message.get("refusal")
        return refusal if isinstance(refusal, str) else ""
    if isinstance(content, list):
        return "\n".join(map(_part_text, content))
    return content if isinstance(content, str) else str(content)


def images_in(message: Message) -> list[dict[str, Any]]:
    """Return the images of a message, as OpenAI's API takes them."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, dict) and part.get("type") == "image_url"]


def _part_text(part: Any) -> str:
    if not isinstance(part, Mapping):
        return str(part)
    text = part.get("text")
    if isinstance(text, str):
        return text
    kind = str(part.get("type", "part"))
    about = _media_in(part.get(kind)) if kind in _MEDIA else ""
    return f"[{kind}: {about}]" if about else f"[{kind}]"


def _media_in(value: Any) -> str:
    """Return the name, kind and size or the address of an image, a file or a sound."""
    fields = value if isinstance(value, Mapping) else {"url": value}
    known = [fields.get("filename"), fields.get("format")]
    source = fields.get("url") or fields.get("file_data") or fields.get("data")
    if isinstance(source, str):
        data = _DATA_URL.match(source)
        is_address = data is None and _ADDRESS.match(source) is not None
        kilobytes = max(1, round(len(source.rpartition(",")[2]) * 3 / 4 / 1000))
        known += [source] if is_address else [data and data["type"], f"{kilobytes} kB"]
    known += [fields.get("file_id")]
    return ", ".join(one_line(text, _MAX_NAME) for text in known if isinstance(text, str) and text)


def tool_calls_in(message: Message) -> Iterator[dict[str, Any]]:
    """Yield the tool calls of a message, and last its `function_call` of the older format."""
    for call in message.get("tool_calls") or []:
        if isinstance(call, dict):
            yield call
    if isinstance(message.get("function_call"), dict):
        yield {"type": "function", "function": message["function_call"]}


def tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return a tool call for a message, with its arguments as the model wrote them."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_name(call: Mapping[str, Any]) -> str:
    """Return the name of the tool that is called."""
    function = call.get("function")
    return str(function.get("name", "")) if isinstance(function, Mapping) else ""


def tool_arguments(call: Mapping[str, Any]) -> str:
    """Return the arguments of a call as text; usually JSON that the model wrote."""
    function = call.get("function")
    arguments = function.get("arguments", "") if isinstance(function, Mapping) else ""
    return to_text(arguments)


InstructionRole = Literal["system", "developer"]
"""Roles of instructions, which belong in the agent.yaml."""
_ABOUT_ANSWERS = ("refusal", "annotations", "audio", "function_call")
"""Keys that some libraries write into every response, nearly always without a value."""


class CalledFunction(Model):
    """The called tool and its arguments."""

    name: NonBlank
    """Name of the tool."""
    arguments: dict[str, Json] | str = {}
    """The arguments, as a mapping or as JSON text."""

    @property
    def arguments_text(self) -> str:
        """The arguments as JSON."""
        return to_text(self.arguments)

    @model_validator(mode="after")
    def _arguments_are_json(self) -> "CalledFunction":
        if not isinstance(self.arguments, str) or not self.arguments.strip():
            return self
        try:
            value = json.loads(self.arguments)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"'arguments': cannot be read as JSON: {error}") from error
        if isinstance(value, dict):
            return self
        raise ValueError("'arguments': the JSON is not a mapping; write {\"name\": value}")


class EarlierCall(Model):
    """A tool call of an earlier response."""

    id: NonBlank
    """The `tool_call_id` of the message with the result."""
    type: Literal["function"] = "function"
    """Type of the tool."""
    function: CalledFunction
    """The tool and its arguments."""


class TextPart(Model):
    """A text part of a message."""

    type: Literal["text"]
    """The kind of part; only text is supported."""
    text: str
    """The text."""


def _shape(value: Any) -> str:
    """Return the tag of the union member, so that errors are about that member only."""
    return "a list" if isinstance(value, list) else "no list"


Content = Annotated[
    Annotated[str, Tag("no list")] | Annotated[list[TextPart], Tag("a list")], Discriminator(_shape)
]


class EarlierMessage(Model):
    """A message before the case: of the user, of the agent, or the result of a tool."""

    role: Literal["user", "assistant", "tool"]
    """Who wrote the message."""
    content: Content | None = None
    """The text; a response that calls tools may have none."""
    tool_calls: Annotated[list[EarlierCall], Field(min_length=1)] | None = None
    """Tool calls of the agent."""
    tool_call_id: NonBlank | None = None
    """ID of the tool call that returned this result."""
    name: NonBlank | None = None
    """Which of several users wrote it, or the name of the tool."""

    @property
    def text(self) -> str:
        """The text; empty if there is none."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""

    def to_message(self) -> Message:
        """Return the message without keys that are not set."""
        calls = [
            tool_call(call.id, call.function.name, call.function.arguments_text)
            for call in self.tool_calls or ()
        ]
        keys = {"tool_calls": calls or None, "tool_call_id": self.tool_call_id, "name": self.name}
        keys_set = {key: value for key, value in keys.items() if value is not None}
        return cast("Message", {"role": self.role, "content": self.text, **keys_set})

    @classmethod
    def _prepare(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Refuse instructions, and leave out keys without a value."""
        if data.get("role") in ("system", "developer"):  # a set would not take a list
            raise ValueError(
                f"'role': found {data['role']!r}, but the agent's instructions are in"
                " 'instructions'; remove the message, or write"
                f" 'leave_out: [{data['role']}]' beside 'file'"
            )
        without = {key: value for key, value in data.items() if value or key not in _ABOUT_ANSWERS}
        if without.get("tool_calls") == []:
            del without["tool_calls"]
        return without

    @model_validator(mode="after")
    def _has_the_keys_of_its_role(self) -> "EarlierMessage":
        if self.tool_calls is not None and self.role != "assistant":
            raise ValueError(
                f"'tool_calls': only messages of the assistant call tools, not of the {self.role}"
            )
        if (self.tool_call_id is not None) != (self.role == "tool"):
            if self.role == "tool":
                raise ValueError("'tool_call_id' is missing: write the id of the call")
            raise ValueError(
                f"'tool_call_id': only messages of a tool have it, not of the {self.role}"
            )
        if self.role != "tool" and self.tool_calls is None and not self.text.strip():
            raise ValueError("'content' is empty; write the text, or remove the message")
        return self


def messages_of(history: Iterable[EarlierMessage]) -> list[Message]:
    """Return the messages, results with the name of the tool."""
    messages = []
    tool_names: dict[str, str] = {}
    for message in history:
        tool_names |= {call.id: call.function.name for call in message.tool_calls or ()}
        messages.append(message.to_message())
        if message.tool_call_id is not None:
            messages[-1]["name"] = tool_names[message.tool_call_id]
    return messages


def _validate_order(messages: list[EarlierMessage]) -> list[EarlierMessage]:
    """Return the messages if each tool call is followed by its result."""
    open_calls: dict[str, int] = {}
    """The calls that need a result, each with the index of its message."""
    for index, message in enumerate(messages):
        if message.role == "tool":
            if open_calls.pop(message.tool_call_id or "", None) is None:
                raise ValueError(
                    f"'[{index}].tool_call_id': no earlier call with the id"
                    f" {message.tool_call_id!r}"
                    " needs a result"
                )
            continue
        _require_results(open_calls)
        calls = message.tool_calls or []
        open_calls = {call.id: index for call in calls}
        if len(open_calls) < len(calls):
            raise ValueError(
                f"'[{index}].tool_calls': two calls have the same id; give each its own"
            )
    _require_results(open_calls)
    return messages


def _require_results(open_calls: dict[str, int]) -> None:
    for call, index in open_calls.items():
        raise ValueError(
            f"'[{index}].tool_calls': the call {call!r} has no result; write one right after it:"
            f" {{role: tool, tool_call_id: {call}, content: …}}"
        )


def _require_final_answer(messages: list[EarlierMessage]) -> list[EarlierMessage]:
    if messages[-1].role != "assistant":
        fix = "move it to 'input' or the first of 'turns'"
        if messages[-1].role == "tool":
            fix = "add the agent's answer"
        raise ValueError(
            f"'[{len(messages) - 1}].role': the last message is of the {messages[-1].role}, and the"
            f" case continues with the user; {fix}"
        )
    return messages


Messages = Annotated[
    list[EarlierMessage],
    Field(min_length=1),
    AfterValidator(_validate_order),
    AfterValidator(_require_final_answer),
]
"""Earlier messages, the last of which is a response."""


class TranscriptFile(Model):
    """A file with earlier messages."""

    file: ReadPath
    """Path of a JSON or YAML file with a list of messages, or a JSON Lines file with one message
    per line."""
    leave_out: list[InstructionRole] = []
    """Roles whose messages are omitted: `system`, `developer`."""


History = Annotated[
    Annotated[Messages, Tag("a list")] | Annotated[TranscriptFile, Tag("no list")],
    Discriminator(_shape),
]
"""Earlier messages, or the file that contains them."""


@dataclass(frozen=True)
class Image:
    """An image that is sent to a model."""

    data: bytes
    media_type: str
    """Such as `image/png`."""

    @property
    def data_uri(self) -> str:
        """The image as a URL that holds it."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.data).decode()}"

    @property
    def part(self) -> dict[str, Any]:
        """The image as a part of a message in OpenAI's protocol."""
        return {"type": "image_url", "image_url": {"url": self.data_uri}}


class MessageWithImages(str):
    """The text of a message, with images, for a backend whose `Capabilities` accept them."""

    __slots__ = ("images",)
    images: tuple[Image, ...]

    def __new__(cls, text: str, images: Iterable[Image]) -> "MessageWithImages":
        """Return the message; whoever reads it as a string sees its text only."""
        message = super().__new__(cls, text)
        message.images = tuple(images)
        return message
