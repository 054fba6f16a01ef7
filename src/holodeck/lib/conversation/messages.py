"""From what somebody returned to messages, and copies of them."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol, TypeAlias, runtime_checkable

from holodeck.lib.text import abridged, one_line, printable

Message: TypeAlias = dict[str, Any]
"""A message as OpenAI has it: `role`, `content`, and perhaps `tool_calls`."""


UNSEEN_CALLS = "unseen_tool_calls"
"""Key of a message of an agent whose tool calls are unknown: its value is true."""
EARLIER = "earlier"
"""Key of a message that was said before the conversation: its value is true."""


class AgentRole(Enum):
    """The part that somebody plays; within a turn they speak in this order."""

    USER = "User"
    AGENT = "Agent"
    JUDGE = "Judge"


WANTED = (
    "return a text, a message such as {'role': 'assistant', 'content': '…'}, a list of messages,"
    " or a ScenarioResult"
)
ROLE_NAMES = {AgentRole.USER: "user", AgentRole.AGENT: "assistant", AgentRole.JUDGE: "assistant"}
"""As whom a bare text is said."""


@runtime_checkable
class _Dumpable(Protocol):
    """A library's own message."""

    role: str

    def model_dump(self, **options: Any) -> dict[str, Any]: ...


def messages_of(returned: Any, role: AgentRole) -> list[Message]:
    """The messages that a returned value stands for. Raises ValueError for anything else."""
    if isinstance(returned, list):
        return [_message(one, role) for one in returned]
    return [_message(returned, role)]


def fixed_message(content: Any, role: AgentRole) -> Message:
    """The message that a script lets a role say. Raises ValueError for an empty one."""
    step = role.value.lower()
    try:
        message = _message(content, role)
    except ValueError as error:
        raise ValueError(f"{step}(…): {error}") from error
    said = message.get("content")
    if isinstance(said, str) and not said.strip() and not message.get("tool_calls"):
        raise ValueError(
            f"{step}({content!r}): the text is empty; write what the {ROLE_NAMES[role]} says,"
            f" or {step}() to let them speak"
        )
    return message


def _message(value: Any, role: AgentRole) -> Message:
    if isinstance(value, str):
        return {"role": ROLE_NAMES[role], "content": value}
    if isinstance(value, Mapping) and isinstance(value.get("role"), str):
        return _through_json(dict(value))
    if isinstance(value, _Dumpable):
        dumped = value.model_dump(exclude_none=True)
        # Providers refuse empty lists such as that of tool calls; defaults that say more are kept.
        told = {name: one for name, one in dumped.items() if one not in ([], {})}
        return _through_json({"role": value.role, **told})
    raise ValueError(f"{_shown(value)} is no answer; {WANTED}")


def _through_json(message: dict[str, Any]) -> Message:
    """The message as JSON holds it, which makes it a copy."""
    try:
        copied: Message = json.loads(json.dumps(message))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"the message {_shown(message)} cannot be written as JSON ({error}); {WANTED}"
        ) from error
    return copied


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    return f"{type(value).__name__} {one_line(repr(value), 80)}"


def copied(value: Any) -> Any:
    """A copy of a JSON value, all the way down."""
    if isinstance(value, dict):
        # Most of it is text, which needs no call.
        return {key: one if type(one) is str else copied(one) for key, one in value.items()}
    if isinstance(value, list):
        return [copied(one) for one in value]
    return value


def text_of(message: Message) -> str:
    """The text of a message, or of its refusal; what is not text is named in brackets."""
    content = message.get("content")
    if content is None:
        refusal = message.get("refusal")
        return refusal if isinstance(refusal, str) else ""
    if isinstance(content, list):
        return "\n".join(_part(one) for one in content)
    return content if isinstance(content, str) else str(content)


def _part(part: Any) -> str:
    if isinstance(part, Mapping):
        text = part.get("text")
        return text if isinstance(text, str) else f"[{part.get('type', 'part')}]"
    return str(part)


def calls_in(message: Message) -> Iterator[dict[str, Any]]:
    """The tool calls of a message, as it has them; the one call of an older format as the last."""
    for call in message.get("tool_calls") or []:
        if isinstance(call, dict):
            yield call
    if isinstance(message.get("function_call"), dict):
        yield {"type": "function", "function": message["function_call"]}


def tool_name(call: Mapping[str, Any]) -> str:
    """The name of the tool that a call is for."""
    function = call.get("function")
    return str(function.get("name", "")) if isinstance(function, Mapping) else ""


def arguments_of(call: Mapping[str, Any]) -> str:
    """The arguments of a call as text; JSON if the model wrote some."""
    function = call.get("function")
    given = function.get("arguments", "") if isinstance(function, Mapping) else ""
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


BUDGET = 24_000
"""Characters of a transcript that fit into a judge's prompt."""
FULL = 4
"""So many messages at the beginning and at the end are shown whole, if that fits."""
LEAST = 40
MOST_FOUND = 6
AROUND = 300
_WORD = re.compile(r"\w{4,}")


def transcript_of(messages: Iterable[Message]) -> str:
    """All that was said and done, in numbered paragraphs."""
    return "\n".join(paragraphs_of(messages))


def paragraphs_of(messages: Iterable[Message]) -> list[str]:
    """A paragraph for what each message says and for each call in it, with the message's number.

    No text can pass for another message, for a call, or for a heading of a prompt: words follow a
    colon, calls do not, and the other lines of a paragraph are indented.
    """
    return [
        indent(f"[{number}] {told}")
        for number, one in enumerate(messages, 1)
        for told in _told(one)
    ]


def indent(said: str) -> str:
    """A text whose lines are indented but the first one."""
    return said.replace("\n", "\n    ")


def _told(message: Message) -> Iterator[str]:
    role = str(message.get("role", ""))
    if role in {"tool", "function"}:
        role = f"result of {message.get('name') or 'the tool'}"
    who = f"before this, {role}" if message.get(EARLIER) else role
    calls = list(calls_in(message))
    if message.get(UNSEEN_CALLS) and not calls:
        yield f"{who} may call tools unseen: that no call is shown here proves nothing"
    if text_of(message) or not calls:
        yield printable(f"{who}: {text_of(message)}")
    for call in calls:
        yield printable(f"{who} calls {tool_name(call)}({arguments_of(call)})")


def shorten_lines(lines: Sequence[str], about: Iterable[str], budget: int = BUDGET) -> str:
    """The lines within a budget of characters.

    What shares words with `about`, and the beginning and the end, keep more of their length than
    the rest; every message stays visible as long as there is room for one line of each.
    """
    if sum(map(len, lines)) + len(lines) <= budget:
        return "\n".join(lines)
    weights = _weights(lines, about)
    room = budget - len(lines)
    total = sum(weights)
    shares = [max(LEAST, int(room * weight / total)) for weight in weights]
    kept = [abridged(line, share) for line, share in zip(lines, shares, strict=True)]
    return _within("\n".join(kept), budget)


def _weights(lines: Sequence[str], about: Iterable[str]) -> list[int]:
    wanted = {word.lower() for text in about for word in _WORD.findall(text)}
    weights = []
    for index, line in enumerate(lines):
        is_edge = index < FULL or index >= len(lines) - FULL
        shared = len(wanted & {word.lower() for word in _WORD.findall(line)})
        weights.append(min(len(line), (1 + 4 * is_edge + 2 * shared) * LEAST * 5))
    return weights


def _within(text: str, budget: int) -> str:
    """The last resort for thousands of messages: the beginning and the end."""
    if len(text) <= budget:
        return text
    half = budget // 2
    return f"{text[:half]}\n[… search for what was said in between …]\n{text[-half:]}"


def find_passages(lines: Sequence[str], wanted: str) -> str:
    """The passages that hold a text, whatever its case; at most a handful."""
    hits = [(line, line.lower().find(wanted.lower())) for line in lines]
    passages = [_around(line, at, len(wanted)) for line, at in hits if at >= 0]
    if not passages:
        return f"{wanted!r}: nowhere"
    more = len(passages) - MOST_FOUND
    shown = passages[:MOST_FOUND] + ([f"… and {more} more"] if more > 0 else [])
    return "\n".join([f"{wanted!r}:", *shown])


def _around(line: str, at: int, length: int) -> str:
    number = line.partition(" ")[0]
    start, end = max(0, at - AROUND), at + length + AROUND
    passage = line[start:end]
    return passage if start == 0 else f"{number} …{passage}"
