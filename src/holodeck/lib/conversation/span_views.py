"""What script steps read from the spans of a conversation."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holodeck.lib.conversation.span_evidence import reason_for_no_spans
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


@dataclass(frozen=True)
class TraceView:
    """One trace of a conversation."""

    id: str
    """Its id, as in the header `traceparent`."""
    spans: Sequence[ReadableSpan]
    """Its spans that have ended, oldest first."""


def spans_of(log: SpanLog | None) -> list[ReadableSpan]:
    """Return the spans of a conversation, without ours around scenarios and turns.

    Warns if there may be spans that cannot be seen.
    """
    found = [] if log is None else log.spans
    shown = [one for one in found if ROLE in attributes_of(one) or not is_ours(one)]
    if all(map(is_ours, shown)) and (reason := reason_for_no_spans(log)):
        message = f"whether the agent made spans is unknown: {reason}"
        warnings.warn(message, UserWarning, stacklevel=4)
    return shown


def traces_of(spans: Sequence[ReadableSpan]) -> list[TraceView]:
    """Return the traces of these spans, the oldest first."""
    by_trace: dict[str, list[ReadableSpan]] = {}
    for span in sort_spans(spans):
        by_trace.setdefault(trace_id(span), []).append(span)
    return [TraceView(key, found) for key, found in by_trace.items()]


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
