"""The spans of a conversation, or of one call of an agent: which are kept, and what is missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from holodeck.lib.observability import names

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

THREAD_ID = "langwatch.thread.id"
"""The attribute that assigns a span to a conversation, wherever it is made."""
ROLE = "scenario.role"
TURN = "scenario.turn"
AGENT = "Agent"
"""The role of the agents under test."""

MAX_SPANS = 5_000
MAX_CHARACTERS = 20_000_000


def _ignore() -> None:
    """Do nothing."""


class SpanStore:
    """Keeps spans, from any thread, up to a limit.

    Args:
        thread_id: The id of the conversation, or of the trace of the call.
        max_spans: The most spans that are kept; further ones are only counted.
        max_characters: The most characters of text in attributes that are kept.
        value_limit: How many characters of a value count, where longer ones are cut; None for all.
        on_end: Called from any thread when a span has ended.
    """

    def __init__(
        self,
        thread_id: str,
        *,
        max_spans: int = MAX_SPANS,
        max_characters: int = MAX_CHARACTERS,
        value_limit: int | None = None,
        on_end: Callable[[], None] = _ignore,
    ) -> None:
        self.thread_id = thread_id
        self.gaps: list[str] = []
        """What may have happened without being seen, as clauses for people and judges."""
        self.is_collecting = False
        """Whether spans of this process can be seen."""
        self.dropped = 0
        """Spans beyond the limit."""
        self.turns: dict[str, int] = {}
        """The numbers of the turns, by the ids of their traces."""
        self.strays = 0
        """Spans since the store was opened that belong to no store."""
        self.late = 0
        """Spans since then that belong to a store that is closed."""
        self.unowned: str | None = None
        """The name of the first span that may belong to any store; None without one."""
        self.last_end = time.monotonic()
        """When the last span ended or arrived."""
        self._max_spans = max_spans
        self._room = max_characters
        self._value_limit = value_limit
        self._on_end = on_end
        self._ended: dict[int, ReadableSpan] = {}
        self._open: dict[int, ReadableSpan] = {}
        self._lock = threading.Lock()

    def add_gap(self, gap: str) -> None:
        """Record once that something could not be seen."""
        if gap not in self.gaps:
            self.gaps.append(gap)

    def start(self, span: ReadableSpan) -> None:
        """Take a span that has begun."""
        with self._lock:
            if is_ours(span) and TURN in attributes_of(span):
                self.turns[trace_id(span)] = attributes_of(span)[TURN]
            if len(self._open) < self._max_spans:
                self._open[span_id(span)] = span

    def end(self, span: ReadableSpan) -> None:
        """Take a span that has ended; one that comes again counts once."""
        with self._lock:
            self._open.pop(span_id(span), None)
            if span_id(span) not in self._ended:
                self._keep(span)
            self.last_end = time.monotonic()
        self._on_end()

    def _keep(self, span: ReadableSpan) -> None:
        if not is_ours(span):  # ours are always kept: they say whose the others are
            size = _size(span, self._value_limit)
            if len(self._ended) >= self._max_spans or size > self._room:
                self.dropped += 1
                return
            self._room -= size
        self._ended[span_id(span)] = span

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended, in the order of their beginnings."""
        with self._lock:
            return sort_spans(self._ended.values())

    @property
    def open_names(self) -> list[str]:
        """The names of the spans that have begun but not ended."""
        with self._lock:
            return [span.name for span in self._open.values()]

    @property
    def agent_spans(self) -> list[ReadableSpan]:
        """The spans of the agents under test and of steps, without those of users and judges.

        Spans that have not ended are among them, and so are ours around calls of agents.
        Empty if there are none but ours.
        """
        with self._lock:
            known = {**self._ended, **self._open}
        spans = [span for span in known.values() if _is_of_agent(span, known)]
        return [] if all(map(is_ours, spans)) else sort_spans(spans)

    def orphans(self, root_id: int) -> list[ReadableSpan]:
        """Return the spans whose surrounding span has not ended; `root_id` is around all."""
        with self._lock:
            known = {root_id, None, *self._ended}
            return [span for span in self._ended.values() if parent_id(span) not in known]


def span_id(span: ReadableSpan) -> int:
    """Return the id of a span; 0 without one."""
    context = span.get_span_context()
    return 0 if context is None else context.span_id


def trace_id(span: ReadableSpan) -> str:
    """Return the id of a span's trace, as headers write it."""
    context = span.get_span_context()
    return format(0 if context is None else context.trace_id, "032x")


def parent_id(span: ReadableSpan) -> int | None:
    """Return the id of the span around a span; None if there is none."""
    return None if span.parent is None else span.parent.span_id


def attributes_of(span: ReadableSpan) -> Mapping[str, Any]:
    """Return the attributes of a span."""
    return span.attributes or {}


def scope_of(span: ReadableSpan) -> str:
    """Return the name of the tracer that made a span; `unknown` without one."""
    scope = getattr(span, "instrumentation_scope", None)
    return str(getattr(scope, "name", "unknown"))


def is_ours(span: ReadableSpan) -> bool:
    """Whether it is a span that holodeck puts around turns and calls of participants."""
    return scope_of(span) == names.SCENARIO_TRACER


def sort_spans(spans: Iterable[ReadableSpan]) -> list[ReadableSpan]:
    """Return the spans in the order of their beginnings."""
    return sorted(spans, key=lambda span: span.start_time or 0)


def _is_of_agent(span: ReadableSpan, known: Mapping[int, ReadableSpan]) -> bool:
    if is_ours(span) and ROLE not in attributes_of(span):
        return False  # a turn
    current: ReadableSpan | None = span
    for _ in range(len(known)):
        if current is None:
            break
        if is_ours(current) and ROLE in attributes_of(current):
            return bool(attributes_of(current)[ROLE] == AGENT)
        current = known.get(parent_id(current) or 0)
    return True


def _size(span: ReadableSpan, value_limit: int | None) -> int:
    values = [*attributes_of(span).values()]
    for event in span.events:
        values += (event.attributes or {}).values()
    return _length(values, value_limit)


def _length(value: Any, limit: int | None) -> int:
    if isinstance(value, str):
        return len(value[:limit])
    return sum(_length(item, limit) for item in value) if isinstance(value, list | tuple) else 16
