"""The spans of a conversation, or of a call of an agent: which are kept, and what is missing.

A collector gives the spans of this process, and those that exporters send, to the stores that they
belong to. That of this process is a span processor of the process's tracer provider, and does
nothing while no store is open: OpenTelemetry has no function that removes a processor. Without a
provider, ours takes its place while a store is open.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from holodeck.lib.observability import names
from holodeck.lib.observability.tracing import get_tracer

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor


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
        """The name of the first span that may belong to any store; None if there is none."""
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
        """Take a span that has ended; if it comes again, it counts once."""
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
    """Return the id of a span; 0 if it has none."""
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
    """Return the name of the tracer that made a span; `unknown` if it has none."""
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


MAX_UNASSIGNED = 2_000
"""Spans of unknown stores that are kept until a span around them says whose they are."""

owner: ContextVar[SpanStore | Literal["harness"] | None] = ContextVar("owner", default=None)
"""Whose code runs in this context: the agent's, whose spans go to a store, or the harness's, such
as a metric of the user. None in a thread or task that was started without the context."""


class SpanCollector:
    """Gives each span to the open store that it belongs to.

    A span belongs to a store by its trace, by the attribute `langwatch.thread.id`, or by the span
    around it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._stores: dict[str, SpanStore] = {}
        self._by_trace: dict[str, SpanStore] = {}
        self._by_span: dict[int, SpanStore] = {}
        """Stores by spans of other traces than theirs."""
        self._closed: set[str] = set()
        """Traces of stores that are closed."""
        self._unassigned: deque[ReadableSpan] = deque(maxlen=MAX_UNASSIGNED)

    @contextmanager
    def open(self, store: SpanStore, trace: str | None = None) -> Iterator[None]:
        """Collect spans for the store inside the block, among them those of the trace."""
        with self._lock:
            self._stores[store.thread_id] = store
            if trace is not None:
                self._by_trace[trace] = store
        try:
            yield
        finally:
            with self._lock:
                del self._stores[store.thread_id]
                traces = {key for key, other in self._by_trace.items() if other is store}
                self._closed |= traces
                for key in traces:
                    del self._by_trace[key]
                by_span = self._by_span.items()
                self._by_span = {span: other for span, other in by_span if other is not store}
                if not self._stores:
                    self._unassigned.clear()
                    self._closed.clear()
                    self._stop()

    def _stop(self) -> None:
        """Called when the last store is closed."""

    def start(self, span: ReadableSpan) -> None:
        """Take a span of this process that begins in the current context."""
        if not self._stores:
            return
        with self._lock:
            store = self._find(span) or self._adopt(span)
            if store is None:
                return
            if is_ours(span):
                self._by_trace[trace_id(span)] = store
            elif trace_id(span) not in self._by_trace:
                self._by_span[span_id(span)] = store
            store.start(span)

    def end(self, span: ReadableSpan) -> None:
        """Take a span that has ended."""
        with self._lock:
            store = self._find(span)
            if store is not None:
                store.end(span)
                if trace_id(span) not in self._by_trace and span_id(span) not in self._by_span:
                    self._by_span[span_id(span)] = store
                    self._assign_inner_spans(store)
            elif self._stores:
                self._unassigned.append(span)
                self._count_stray(1)

    def receive(self, span: ReadableSpan) -> None:
        """Take a span that an exporter has sent."""
        with self._lock:
            if self._find(span) is not None or trace_id(span) not in self._closed:
                self.end(span)
                return
            for store in self._stores.values():
                store.late += 1

    def _find(self, span: ReadableSpan) -> SpanStore | None:
        if not self._stores:
            return None
        store = self._by_trace.get(trace_id(span)) or self._by_span.get(span_id(span))
        if store is None:
            store = self._stores.get(str(attributes_of(span).get(THREAD_ID)))
        return store or self._by_span.get(parent_id(span) or 0)

    def _adopt(self, span: ReadableSpan) -> SpanStore | None:
        """Return the store of the code that begins a span of another trace.

        If there is none, the span may belong to any store, which all note its name.
        """
        is_late = trace_id(span) in self._closed
        begins_trace = span.parent is None or span.parent.is_remote
        if not (begins_trace or is_late) or scope_of(span).startswith(names.TRACER):
            return None
        current = owner.get()
        if isinstance(current, SpanStore) and current.thread_id in self._stores:
            self._by_trace[trace_id(span)] = current
            return current
        if current != "harness":
            for store in self._stores.values():
                store.late += is_late
                store.unowned = span.name if store.unowned is None else store.unowned
        return None

    def _assign_inner_spans(self, store: SpanStore) -> None:
        """Give the store the spans inside of a span that was assigned when it ended."""
        for span in reversed([*self._unassigned]):
            if self._by_span.get(parent_id(span) or 0) is store:
                self._by_span[span_id(span)] = store
                self._unassigned.remove(span)
                self._count_stray(-1)
                store.end(span)

    def _count_stray(self, change: int) -> None:
        for store in self._stores.values():
            store.strays += change


class ProcessCollector(SpanCollector):
    """Collects the spans of this process, as a processor of its tracer providers."""

    def __init__(self) -> None:
        super().__init__()
        self._uses_provider = False
        """Whether the provider of this process was asked for, which may be ours."""

    def watch(self, store: SpanStore) -> None:
        """Let the tracer provider of this process feed the store, if it takes processors."""
        tracer = _process_tracer()
        with self._lock:
            self._uses_provider = True
            provider = tracer.process_provider()
            provider = tracer.sdk_provider() if provider is None else provider
            if not hasattr(provider, "add_span_processor"):
                name = f"{type(provider).__module__}.{type(provider).__qualname__}"
                store.add_gap(
                    f"the tracer provider of this process ({name}) takes no span processor"
                )
                return
            tracer.add_once(provider, _processor())
            store.is_collecting = True

    def watch_run(self, store: SpanStore) -> None:
        """Let the tracer of the run feed the store, if the run is being traced."""
        processors = getattr(get_tracer(), "span_processor", None)
        if processors is not None:
            with self._lock:
                _process_tracer().add_once(processors, _processor())
                store.is_collecting = True

    def _stop(self) -> None:
        if self._uses_provider:
            self._uses_provider = False
            _process_tracer().close_sdk_provider()


process_spans = ProcessCollector()
"""The collector of this process."""


def _process_tracer() -> ModuleType:
    """Return the module, which imports OpenTelemetry, as most runs have no spans."""
    from holodeck.lib.support import process_tracer  # noqa: PLC0415

    return process_tracer


@cache
def _processor() -> SpanProcessor:
    from opentelemetry.sdk.trace import SpanProcessor

    class Processor(SpanProcessor):
        def on_start(self, span: ReadableSpan, parent_context: object = None) -> None:  # noqa: ARG002
            process_spans.start(span)

        def on_end(self, span: ReadableSpan) -> None:
            process_spans.end(span)

    return Processor()
