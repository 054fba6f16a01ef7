"""What script steps read from a conversation besides its messages: tool calls, turns, spans."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from holodeck.lib.conversation.messages import deep_copy
from holodeck.lib.observability import names
from holodeck.lib.spans.store import (
    ROLE,
    SpanStore,
    attributes_of,
    is_ours,
    sort_spans,
    trace_id,
)
from holodeck.lib.support.text import value_in_text
from holodeck.models.cases.messages import (
    Message,
    text_of,
    tool_arguments,
    tool_calls_in,
    tool_name,
)
from holodeck.models.results.evidence import documents_in, text_of_document

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_RESULT_ROLES = {"tool", "function"}


@dataclass(frozen=True)
class ToolCall:
    """A tool call; false if it stands for no call at all."""

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


class ToolCalls(list[ToolCall]):
    """Tool calls, oldest first: those of a single tool, or of any."""

    def __init__(self, calls: Iterable[ToolCall], name: str | None = None) -> None:
        super().__init__(calls)
        self._nothing = ToolCall(name or "")

    @property
    def first(self) -> ToolCall:
        """The oldest call; without any, a call that is false."""
        return self[0] if self else self._nothing

    @property
    def last(self) -> ToolCall:
        """The latest call; without any, a call that is false."""
        return self[-1] if self else self._nothing

    @property
    def inputs(self) -> list[Any]:
        """The arguments of all calls."""
        return [call.input for call in self]

    @property
    def outputs(self) -> list[Any]:
        """What the tool returned, for all calls."""
        return [call.output for call in self]


def calls_of(calls: Iterable[ToolCall], name: str | None) -> ToolCalls:
    """Return the calls of a tool, or all calls if the name is None."""
    return ToolCalls([call for call in calls if name in {None, call.name}], name)


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
        return calls_of(self._calls, name)


@dataclass(frozen=True)
class TurnView:
    """One turn of a conversation."""

    index: int
    messages: list[Message]
    _calls: tuple[ToolCall, ...] = ()
    trace: TraceView | None = None
    """The spans of the turn; None if there are none."""

    def tool_calls(self, name: str | None = None) -> ToolCalls:
        """The calls of a tool or of any in this turn, oldest first."""
        return calls_of(self._calls, name)


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
                arguments = value_in_text(tool_arguments(call))
                calls.append(ToolCall(tool_name(call), arguments, turn=turn, source="message"))
        elif message.get("role") in _RESULT_ROLES:
            answered = str(message.get("tool_call_id") or message.get("name"))
            if (index := waiting.pop(answered, None)) is not None:
                output = deep_copy(message.get("content"))
                calls[index] = replace(calls[index], output=output)
    return calls


def first_text(messages: Iterable[Message], role: str) -> str:
    """Return the text of the first message of a role, with its tool calls as JSON; "" if none."""
    for message in messages:
        if message.get("role") == role:
            calls = [json.dumps(call, ensure_ascii=False) for call in tool_calls_in(message)]
            return "\n".join(part for part in [text_of(message), *calls] if part)
    return ""


def shown_spans(store: SpanStore | None) -> list[ReadableSpan]:
    """Return the spans of a conversation, without ours around scenarios and turns."""
    spans = [] if store is None else store.spans
    return [span for span in spans if ROLE in attributes_of(span) or not is_ours(span)]


def traces_of(
    spans: Sequence[ReadableSpan], calls: Sequence[ToolCall], positions: Mapping[str, int]
) -> list[TraceView]:
    """Return the traces of these spans, the oldest first.

    `positions` has the positions of turns in `state.turns` by the ids of their traces.
    """
    by_trace: dict[str, list[ReadableSpan]] = {}
    for span in sort_spans(spans):
        by_trace.setdefault(trace_id(span), []).append(span)
    views = []
    for key, members in by_trace.items():
        candidates = calls if key in positions else _calls_in(members, positions)
        turn = positions.get(key)
        views.append(TraceView(key, members, tuple(c for c in candidates if c.turn == turn)))
    return views


def with_span_calls(
    calls: Sequence[ToolCall], store: SpanStore | None, positions: Mapping[str, int]
) -> list[ToolCall]:
    """Return the tool calls of messages, and those of spans that no message contains.

    A span of a call that a message contains says what the tool returned, if no message does.
    """
    merged = list(calls)
    open_calls = list(range(len(merged)))
    spans = [] if store is None else store.agent_spans
    ended = [span for span in spans if span.end_time is not None]
    for call in _calls_in(ended, positions):
        twin = next((at for at in open_calls if _is_same(merged[at], call)), None)
        if twin is None:
            merged.append(call)
            continue
        open_calls.remove(twin)
        if merged[twin].output is None:
            merged[twin] = replace(merged[twin], output=call.output)
    last = len(positions)
    return sorted(merged, key=lambda call: last if call.turn is None else call.turn)


def _calls_in(spans: Sequence[ReadableSpan], positions: Mapping[str, int]) -> list[ToolCall]:
    calls = []
    for span in spans:
        attributes = attributes_of(span)
        is_tool = attributes.get("langwatch.span.type") == "tool"
        if not is_tool and attributes.get(names.OPERATION) != names.EXECUTE_TOOL:
            continue
        name = str(attributes.get(names.TOOL_NAME) or span.name)
        arguments = attributes.get("langwatch.input", attributes.get(names.TOOL_ARGUMENTS))
        output = attributes.get("langwatch.output", attributes.get(names.TOOL_RESULT))
        turn = positions.get(trace_id(span))
        calls.append(ToolCall(name, arguments, output, turn, "span"))
    return calls


def _is_same(call: ToolCall, other: ToolCall) -> bool:
    is_other_turn = None not in {call.turn, other.turn} and call.turn != other.turn
    if call.name != other.name or is_other_turn:
        return False
    return bool(value_in_text(call.input) == value_in_text(other.input))


def contexts_of(spans: Sequence[ReadableSpan]) -> list[str]:
    """Return the documents that spans of retrievals hold, oldest first; without a text, as JSON."""
    documents = [
        document for span in sort_spans(spans) for document in documents_in(attributes_of(span))
    ]
    return [
        text_of_document(document) or json.dumps(document, default=str) for document in documents
    ]
