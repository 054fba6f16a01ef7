"""What script steps read from the spans of a conversation."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holodeck.lib.conversation.state_views import ToolCall, TraceView
from holodeck.lib.observability import names
from holodeck.lib.spans.evidence import reason_for_no_spans
from holodeck.lib.spans.store import (
    ROLE,
    SpanStore,
    attributes_of,
    is_ours,
    sort_spans,
    trace_id,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_CONTEXTS = ("langwatch.rag_contexts", "langwatch.rag.contexts", "retrieval.documents")


def spans_of(store: SpanStore | None) -> list[ReadableSpan]:
    """Return the spans of a conversation, without ours around scenarios and turns.

    Warns if there may be spans that cannot be seen.
    """
    spans = shown_spans(store)
    if all(map(is_ours, spans)) and (reason := reason_for_no_spans(store)):
        message = f"whether the agent made spans is unknown: {reason}"
        warnings.warn(message, UserWarning, stacklevel=4)
    return spans


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
    return bool(_parsed(call.input) == _parsed(other.input))


def contexts_of(spans: Sequence[ReadableSpan]) -> list[str]:
    """Return the texts that spans of retrievals hold, oldest first."""
    return [text for span in sort_spans(spans) for text in _contexts(span)]


def _contexts(span: ReadableSpan) -> Iterator[str]:
    attributes = attributes_of(span)
    raw = next((attributes[key] for key in _CONTEXTS if attributes.get(key) is not None), None)
    value = _parsed(raw)
    items = value if isinstance(value, list | tuple) else [] if value is None else [value]
    for item in items:
        content = item.get("content", item) if isinstance(item, dict) else item
        yield content if isinstance(content, str) else json.dumps(content, default=str)


def _parsed(raw: Any) -> Any:
    if not isinstance(raw, str):
        return raw
    try:
        return json.loads(raw)
    except ValueError:
        return raw
