"""Messages of a conversation, in the shape of OpenAI's API, and their transcript as text."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from holodeck.lib.support.text import is_blank, one_line, printable, shorten_middle
from holodeck.models.cases.messages import (
    Message,
    text_of,
    tool_arguments,
    tool_calls_in,
    tool_name,
)

TRANSCRIPT_LIMIT = 24_000
"""Characters of a transcript that fit into a judge's prompt."""
_FULL_MESSAGES = 4
"""Messages at the beginning and at the end that are shown in full, if they fit."""
_MIN_LINE = 40
_MAX_NAME = 100
_MAX_PASSAGES = 6
_PASSAGE_MARGIN = 300
_WORD = re.compile(r"\w{4,}")

_EXPECTED = (
    "return a text, a message such as {'role': 'assistant', 'content': '…'}, a list of messages,"
    " or a ScenarioResult"
)


class AgentRole(Enum):
    """The role of a participant; within a turn they speak in this order."""

    USER = "User"
    AGENT = "Agent"
    JUDGE = "Judge"


_MESSAGE_ROLES = {
    AgentRole.USER: "user",
    AgentRole.AGENT: "assistant",
    AgentRole.JUDGE: "assistant",
}
"""The role of a message that is a bare text, by who wrote it."""


@runtime_checkable
class _LibraryMessage(Protocol):
    role: str

    def model_dump(self, **options: Any) -> dict[str, Any]: ...


def to_messages(returned: Any, role: AgentRole) -> list[Message]:
    """Convert what a participant returned to messages. Raises ValueError for anything else."""
    return [
        _to_message(message, role)
        for message in (returned if isinstance(returned, list) else [returned])
    ]


def scripted_message(content: Any, role: AgentRole) -> Message:
    """Return the message for fixed content of a script. Raises ValueError if it is empty."""
    step = role.value.lower()
    try:
        message = _to_message(content, role)
    except ValueError as error:
        raise ValueError(f"{step}(…): {error}") from error
    text = message.get("content")
    if isinstance(text, str) and is_blank(text) and not message.get("tool_calls"):
        raise ValueError(
            f"{step}({content!r}): the text is empty; write what the {_MESSAGE_ROLES[role]} says,"
            f" or {step}() to let them speak"
        )
    return message


def _to_message(value: Any, role: AgentRole) -> Message:
    if isinstance(value, str):
        return {"role": _MESSAGE_ROLES[role], "content": value}
    if isinstance(value, Mapping) and isinstance(value.get("role"), str):
        return _as_plain_json(dict(value))
    if isinstance(value, _LibraryMessage):
        dumped = value.model_dump(exclude_none=True)
        # Providers refuse empty lists such as `tool_calls: []`; other defaults are kept.
        filled = {key: item for key, item in dumped.items() if item not in ([], {})}
        return _as_plain_json({"role": value.role, **filled})
    raise ValueError(f"{_describe(value)} is not a message; {_EXPECTED}")


def _as_plain_json(message: dict[str, Any]) -> Message:
    """Return a copy of the message as JSON holds it."""
    try:
        copied: Message = json.loads(json.dumps(message))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"the message {_describe(message)} cannot be written as JSON ({error}); {_EXPECTED}"
        ) from error
    return copied


def _describe(value: Any) -> str:
    return "None" if value is None else f"{type(value).__name__} {one_line(repr(value), 80)}"


def deep_copy(value: Any) -> Any:
    """Return a deep copy of a JSON value."""
    if isinstance(value, dict):
        # Most values are texts, which need no call.
        return {key: item if type(item) is str else deep_copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [deep_copy(item) for item in value]
    return value


def is_unanswered(messages: Iterable[Message]) -> bool:
    """Whether the agent's last message before the user's next, or before the end, shows nothing."""
    last: Message | None = None
    for message in [*messages, Message(role="user")]:
        if message.get("role") == "assistant":
            last = message
        elif message.get("role") == "user" and last is not None:
            if is_blank(text_of(last)) and not any(tool_calls_in(last)):
                return True
            last = None
    return False


def transcript_of(messages: Iterable[Message]) -> str:
    """Return all messages and tool calls as numbered paragraphs."""
    return "\n".join(paragraphs_of(messages))


def paragraphs_of(messages: Iterable[Message]) -> list[str]:
    """Return a paragraph for the text of each message and for each of its calls, numbered.

    No text can pass for another message, a call or a heading of a prompt: texts follow a colon,
    calls do not, and the further lines of a paragraph are indented.
    """
    return [
        indent(f"[{number}] {paragraph}")
        for number, message in enumerate(messages, 1)
        for paragraph in _paragraphs(message)
    ]


def indent(text: str) -> str:
    """Indent every line of a text but the first."""
    return text.replace("\n", "\n    ")


def _paragraphs(message: Message) -> Iterator[str]:
    role = str(message.get("role", ""))
    if role in {"tool", "function"}:
        role = f"result of {message.get('name') or 'the tool'}"
    who = f"before this, {role}" if message.get("earlier") else role
    calls = list(tool_calls_in(message))
    if message.get("unseen_tool_calls") and not calls:
        yield f"{who} may call tools unseen: that no call is shown here proves nothing"
    if text_of(message) or not calls:
        yield printable(f"{who}: {text_of(message)}")
    for call in calls:
        agent = call.get("agent")
        by = "" if agent is None else f" (agent: {one_line(str(agent), _MAX_NAME)})"
        yield printable(f"{who} calls {tool_name(call)}({tool_arguments(call)}){by}")


def shorten_lines(
    lines: Sequence[str], about: Iterable[str], budget: int = TRANSCRIPT_LIMIT
) -> str:
    """Join the lines within a budget of characters.

    Lines that share words with `about`, and those at the beginning and the end, keep more of their
    length. Every message stays visible as long as there is room for a line of each.
    """
    if sum(map(len, lines)) + len(lines) <= budget:
        return "\n".join(lines)
    wanted = {word.lower() for text in about for word in _WORD.findall(text)}
    weights = []
    for index, line in enumerate(lines):
        is_edge = index < _FULL_MESSAGES or index >= len(lines) - _FULL_MESSAGES
        shared = len(wanted & {word.lower() for word in _WORD.findall(line)})
        weights.append(min(len(line), (1 + 4 * is_edge + 2 * shared) * _MIN_LINE * 5))
    room, total = budget - len(lines), sum(weights)
    shares = [max(_MIN_LINE, int(room * weight / total)) for weight in weights]
    text = "\n".join(shorten_middle(line, share) for line, share in zip(lines, shares, strict=True))
    if len(text) <= budget:
        return text
    # Thousands of messages: only the beginning and the end are left.
    half = budget // 2
    return f"{text[:half]}\n[… search for what was said in between …]\n{text[-half:]}"


def find_passages(lines: Sequence[str], wanted: str) -> str:
    """Return the first passages that contain a text, ignoring case."""
    hits = [(line, line.lower().find(wanted.lower())) for line in lines]
    passages = [_passage(line, start, len(wanted)) for line, start in hits if start >= 0]
    if not passages:
        return f"{wanted!r}: nowhere"
    more = len(passages) - _MAX_PASSAGES
    shown = passages[:_MAX_PASSAGES] + ([f"… and {more} more"] if more > 0 else [])
    return "\n".join([f"{wanted!r}:", *shown])


def _passage(line: str, start: int, length: int) -> str:
    number = line.partition(" ")[0]
    first = max(0, start - _PASSAGE_MARGIN)
    passage = line[first : start + length + _PASSAGE_MARGIN]
    return passage if first == 0 else f"{number} …{passage}"
