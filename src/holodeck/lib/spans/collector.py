"""Gives spans of this process, and those that exporters send, to the stores that they belong to.

This process has one collector. It is a span processor of the process's tracer provider, and does
nothing while no store is open: OpenTelemetry has no function that removes a processor. Without a
provider, one of ours takes its place while a store is open.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Literal

from holodeck.lib.observability import names
from holodeck.lib.observability.tracing import get_tracer
from holodeck.lib.spans.store import (
    THREAD_ID,
    SpanStore,
    attributes_of,
    is_ours,
    parent_id,
    scope_of,
    span_id,
    trace_id,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

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
                self._forget(store)
                if not self._stores:
                    self._unassigned.clear()
                    self._closed.clear()
                    self._stop()

    def _forget(self, store: SpanStore) -> None:
        traces = {trace for trace, other in self._by_trace.items() if other is store}
        self._closed |= traces
        for trace in traces:
            del self._by_trace[trace]
        self._by_span = {key: other for key, other in self._by_span.items() if other is not store}

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
        """Give the store the spans inside of one that was assigned when it ended."""
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
        # Imported here because most runs have no spans.
        from holodeck.lib.support.process_tracer import (  # noqa: PLC0415
            add_once,
            process_provider,
            sdk_provider,
        )

        with self._lock:
            self._uses_provider = True
            provider = process_provider()
            provider = sdk_provider() if provider is None else provider
            if not hasattr(provider, "add_span_processor"):
                name = f"{type(provider).__module__}.{type(provider).__qualname__}"
                store.add_gap(
                    f"the tracer provider of this process ({name}) takes no span processor"
                )
                return
            add_once(provider, _processor())
            store.is_collecting = True

    def watch_run(self, store: SpanStore) -> None:
        """Let the tracer of the run feed the store, if the run is being traced."""
        from holodeck.lib.support.process_tracer import add_once  # noqa: PLC0415 - as above

        processors = getattr(get_tracer(), "span_processor", None)
        if processors is not None:
            with self._lock:
                add_once(processors, _processor())
                store.is_collecting = True

    def _stop(self) -> None:
        if self._uses_provider:
            self._uses_provider = False
            # Imported already, by `watch`.
            from holodeck.lib.support.process_tracer import close_sdk_provider  # noqa: PLC0415

            close_sdk_provider()


process_spans = ProcessCollector()
"""The collector of this process."""


@cache
def _processor() -> SpanProcessor:
    from opentelemetry.sdk.trace import SpanProcessor

    class Processor(SpanProcessor):
        def on_start(self, span: ReadableSpan, parent_context: object = None) -> None:  # noqa: ARG002
            process_spans.start(span)

        def on_end(self, span: ReadableSpan) -> None:
            process_spans.end(span)

    return Processor()
