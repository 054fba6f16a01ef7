"""What script steps read from a conversation besides its messages: tool calls and turns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, overload

from holodeck.lib.conversation.messages import (
    Message,
    deep_copy,
    text_of,
    tool_arguments,
    tool_calls_in,
    tool_name,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_RESULT_ROLES = {"tool", "function"}


@dataclass(frozen=True)
class ToolCall:
    """A tool call. The one that stands for no call at all is false."""

    name: str
    input: Any = None
    """The arguments: the value of their JSON, or the text if it is not JSON."""
    output: Any = None
    """What the tool returned; None if no message and no span says it."""
    turn: int | None = None
    """The index of the turn in `state.turns`."""
    source: Literal["message", "span"] | None = None
    """Where the call was seen; None if it stands for no call."""

    def __bool__(self) -> bool:
        return self.source is not None


class ToolCalls(Sequence[ToolCall]):
    """Tool calls, oldest first: those of a single tool, or of any."""

    def __init__(self, calls: Sequence[ToolCall], name: str | None = None) -> None:
        self._calls = list(calls)
        self._nothing = ToolCall(name or "")

    @overload
    def __getitem__(self, index: int) -> ToolCall: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ToolCall]: ...
    def __getitem__(self, index: int | slice) -> ToolCall | Sequence[ToolCall]:
        return self._calls[index]

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[ToolCall]:
        return iter(self._calls)

    def __repr__(self) -> str:
        return f"ToolCalls({self._calls!r})"

    @property
    def first(self) -> ToolCall:
        """The oldest call; without any, a call that is false."""
        return self._calls[0] if self._calls else self._nothing

    @property
    def last(self) -> ToolCall:
        """The latest call; without any, a call that is false."""
        return self._calls[-1] if self._calls else self._nothing

    @property
    def inputs(self) -> list[Any]:
        """The arguments of all calls."""
        return [call.input for call in self._calls]

    @property
    def outputs(self) -> list[Any]:
        """What the tool returned, for all calls."""
        return [call.output for call in self._calls]


@dataclass(frozen=True)
class TraceView:
    """One trace of a conversation."""

    id: str
    """Its id, as in the header `traceparent`."""
    spans: Sequence[ReadableSpan]
    """Its spans that have ended, oldest first."""
    _calls: tuple[ToolCall, ...] = ()

    def tool_calls(self, name: str | None = None) -> ToolCalls:
        """Return the calls of a tool, or of any, that messages or spans of this trace show."""
        return ToolCalls([call for call in self._calls if name in {None, call.name}], name)


@dataclass(frozen=True)
class TurnView:
    """One turn of a conversation."""

    index: int
    messages: list[Message]
    _calls: tuple[ToolCall, ...] = ()
    trace: TraceView | None = None
    """The spans of the turn; None if there are none."""

    def tool_calls(self, name: str | None = None) -> ToolCalls:
        """The calls of one tool or of any in this turn, oldest first."""
        return ToolCalls([call for call in self._calls if name in {None, call.name}], name)


def calls_in_messages(messages: Sequence[Message], turns: Sequence[int]) -> list[ToolCall]:
    """Return all tool calls in messages of an agent, each with what the tool returned.

    `turns` has the turn of each message.
    """
    calls: list[ToolCall] = []
    waiting: dict[str, int] = {}
    for message, turn in zip(messages, turns, strict=True):
        if message.get("role") == "assistant":
            for call in tool_calls_in(message):
                # A call of the older format has no id; its result has the name of the function.
                waiting[str(call.get("id") or tool_name(call))] = len(calls)
                arguments = _parse(tool_arguments(call))
                calls.append(ToolCall(tool_name(call), arguments, turn=turn, source="message"))
        elif message.get("role") in _RESULT_ROLES:
            answered = str(message.get("tool_call_id") or message.get("name"))
            if (index := waiting.pop(answered, None)) is not None:
                output = deep_copy(message.get("content"))
                calls[index] = replace(calls[index], output=output)
    return calls


def positions_of(turns: Sequence[int]) -> list[int]:
    """Return the positions of turns among those that have messages, counted from 0."""
    known = {turn: position for position, turn in enumerate(dict.fromkeys(turns))}
    return [known[turn] for turn in turns]


def turn_views(
    messages: Sequence[Message], turns: Sequence[int], calls: Sequence[ToolCall]
) -> list[TurnView]:
    """Return the turns that have messages; `turns` has the turn of each message."""
    grouped: dict[int, list[Message]] = {}
    for message, turn in zip(messages, turns, strict=True):
        grouped.setdefault(turn, []).append(deep_copy(message))
    return [
        TurnView(turn, group, tuple(call for call in calls if call.turn == turn))
        for turn, group in grouped.items()
    ]


def first_text(messages: Iterable[Message], role: str) -> str:
    """Return the text of the first message of a role, with its tool calls as JSON; "" if none."""
    for message in messages:
        if message.get("role") == role:
            calls = [json.dumps(call, ensure_ascii=False) for call in tool_calls_in(message)]
            return "\n".join(part for part in [text_of(message), *calls] if part)
    return ""


def _parse(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
