"""What script steps read from the spans of a conversation."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holodeck.lib.conversation.span_evidence import reason_for_no_spans
from holodeck.lib.conversation.state_views import ToolCall, TraceView
from holodeck.lib.observability import names
from holodeck.lib.observability.span_log import (
    ROLE,
    SpanLog,
    attributes_of,
    is_ours,
    sort_spans,
    trace_id,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_CONTEXTS = ("langwatch.rag_contexts", "langwatch.rag.contexts", "retrieval.documents")


def spans_of(log: SpanLog | None) -> list[ReadableSpan]:
    """Return the spans of a conversation, without ours around scenarios and turns.

    Warns if there may be spans that cannot be seen.
    """
    found = shown_spans(log)
    if all(map(is_ours, found)) and (reason := reason_for_no_spans(log)):
        message = f"whether the agent made spans is unknown: {reason}"
        warnings.warn(message, UserWarning, stacklevel=4)
    return found


def shown_spans(log: SpanLog | None) -> list[ReadableSpan]:
    """Return the spans of a conversation, without ours around scenarios and turns."""
    found = [] if log is None else log.spans
    return [one for one in found if ROLE in attributes_of(one) or not is_ours(one)]


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
    for key, found in by_trace.items():
        own = calls if key in positions else _calls_in(found, positions)
        turn = positions.get(key)
        views.append(TraceView(key, found, tuple(one for one in own if one.turn == turn)))
    return views


def with_span_calls(
    calls: Sequence[ToolCall], log: SpanLog | None, positions: Mapping[str, int]
) -> list[ToolCall]:
    """Return the tool calls of messages, and those of spans that no message contains.

    A span of a call that a message contains says what the tool returned, if no message does.
    """
    merged = list(calls)
    open_calls = list(range(len(merged)))
    ended = [] if log is None else [one for one in log.agent_spans if one.end_time is not None]
    for call in _calls_in(ended, positions):
        twin = next((at for at in open_calls if _is_same(merged[at], call)), None)
        if twin is None:
            merged.append(call)
            continue
        open_calls.remove(twin)
        if merged[twin].output is None:
            merged[twin] = replace(merged[twin], output=call.output)
    last = len(positions)
    return sorted(merged, key=lambda one: last if one.turn is None else one.turn)


def _calls_in(spans: Sequence[ReadableSpan], positions: Mapping[str, int]) -> list[ToolCall]:
    found = []
    for span in spans:
        attributes = attributes_of(span)
        is_tool = attributes.get("langwatch.span.type") == "tool"
        if not is_tool and attributes.get(names.OPERATION) != names.EXECUTE_TOOL:
            continue
        name = str(attributes.get(names.TOOL_NAME) or span.name)
        given = attributes.get("langwatch.input", attributes.get(names.TOOL_ARGUMENTS))
        output = attributes.get("langwatch.output", attributes.get(names.TOOL_RESULT))
        turn = positions.get(trace_id(span))
        found.append(ToolCall(name, given, output, turn, "span"))
    return found


def _is_same(call: ToolCall, other: ToolCall) -> bool:
    is_other_turn = None not in {call.turn, other.turn} and call.turn != other.turn
    if call.name != other.name or is_other_turn:
        return False
    return bool(_parsed(call.input) == _parsed(other.input))


def contexts_of(spans: Sequence[ReadableSpan]) -> list[str]:
    """Return the texts that spans of retrievals hold, oldest first."""
    return [text for span in sort_spans(spans) for text in _contexts(span)]


def _contexts(span: ReadableSpan) -> Iterator[str]:
    attributes = attributes_of(span)
    raw = next((attributes[key] for key in _CONTEXTS if attributes.get(key) is not None), None)
    value = _parsed(raw)
    for one in value if isinstance(value, list | tuple) else [] if value is None else [value]:
        content = one.get("content", one) if isinstance(one, dict) else one
        yield content if isinstance(content, str) else json.dumps(content, default=str)


def _parsed(raw: Any) -> Any:
    if not isinstance(raw, str):
        return raw
    try:
        return json.loads(raw)
    except ValueError:
        return raw
