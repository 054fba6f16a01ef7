"""Collects the spans of this process for the conversations that run in it.

A span belongs to a conversation by its trace, as every turn is a trace of its own, or by the
attribute `langwatch.thread.id` of the span or of one around it.

The collector is added to the tracer provider of the process while conversations run, and removed
afterwards. Without a provider, one of ours takes its place for that time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from holodeck.lib.observability import names
from holodeck.lib.observability.span_log import (
    THREAD_ID,
    SpanLog,
    attributes_of,
    is_ours,
    owner,
    parent_id,
    scope_of,
    span_id,
    trace_id,
)
from holodeck.lib.observability.tracing import get_tracer

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

Key = TypeVar("Key")

MAX_UNASSIGNED = 2_000
"""Spans of unknown conversations that are kept until a span around them says whose they are."""

_lock = threading.RLock()
_logs: dict[str, SpanLog] = {}
_by_trace: dict[str, SpanLog] = {}
_by_span: dict[int, SpanLog] = {}
"""Conversations by spans of other traces than theirs."""
_over: set[str] = set()
"""Traces of conversations that are over."""
_unassigned: deque[ReadableSpan] = deque(maxlen=MAX_UNASSIGNED)
_providers: list[Any] = []
"""The tracer providers that have the collector."""


@contextmanager
def collecting(log: SpanLog) -> Iterator[None]:
    """Collect the spans of a conversation inside the block, as far as `watch` finds a provider."""
    with _lock:
        _logs[log.thread_id] = log
    try:
        yield
    finally:
        with _lock:
            del _logs[log.thread_id]
            _over.update(trace for trace, one in _by_trace.items() if one is log)
            _forget(_by_trace, log)
            _forget(_by_span, log)
            if not _logs:
                _stop()


def _forget(known: dict[Key, SpanLog], log: SpanLog) -> None:
    for key in [key for key, one in known.items() if one is log]:
        del known[key]


def watch(log: SpanLog) -> None:
    """Add the collector to the tracer provider of this process, if it is not there yet."""
    # Imported here because most runs have no spans.
    from holodeck.lib.support.process_tracer import process_provider, sdk_provider  # noqa: PLC0415

    with _lock:
        provider = process_provider()
        provider = sdk_provider() if provider is None else provider
        if not any(one is provider for one in _providers):
            if not hasattr(provider, "add_span_processor"):
                name = f"{type(provider).__module__}.{type(provider).__qualname__}"
                log.add_gap(f"the tracer provider of this process ({name}) takes no span processor")
                return
            provider.add_span_processor(_collector())
            _providers.append(provider)
        log.is_collecting = True


def assign_trace(log: SpanLog, trace: str) -> None:
    """Give a conversation the spans of a trace, by its id."""
    with _lock:
        _by_trace[trace] = log


def watch_run(log: SpanLog) -> None:
    """Add the collector to the tracer of the run that is being traced, if there is one."""
    processors = getattr(get_tracer(), "span_processor", None)
    with _lock:
        if processors is not None and not any(one is processors for one in _providers):
            processors.add_span_processor(_collector())
            _providers.append(processors)
            log.is_collecting = True


def _stop() -> None:
    _unassigned.clear()
    _over.clear()
    if not _providers:
        return
    # Imported already, by `watch`.
    from holodeck.lib.support.process_tracer import close_sdk_provider  # noqa: PLC0415

    _providers[:] = [one for one in _providers if not _is_removed_from(one)]
    close_sdk_provider()


def _is_removed_from(provider: Any) -> bool:
    """Remove the collector, and return whether that was possible; it does nothing otherwise.

    OpenTelemetry has no function for it. From our own provider it need not be removed.
    """
    processors: Any = getattr(provider, "_active_span_processor", provider)
    if not isinstance(getattr(processors, "_span_processors", None), tuple):
        return False
    with processors._lock:  # noqa: SLF001
        others = [one for one in processors._span_processors if one is not _collector()]  # noqa: SLF001
        processors._span_processors = tuple(others)  # noqa: SLF001
    return True


@cache
def _collector() -> SpanProcessor:
    from opentelemetry.sdk.trace import SpanProcessor

    class Collector(SpanProcessor):
        def on_start(self, span: ReadableSpan, parent_context: object = None) -> None:  # noqa: ARG002
            with _lock:
                _start(span)

        def on_end(self, span: ReadableSpan) -> None:
            with _lock:
                _end(span)

    return Collector()


def _start(span: ReadableSpan) -> None:
    log = _log_of(span) or _adopt(span)
    if log is None:
        return
    if is_ours(span):
        _by_trace[trace_id(span)] = log
    elif trace_id(span) not in _by_trace:
        _by_span[span_id(span)] = log
    log.start(span)


def _adopt(span: ReadableSpan) -> SpanLog | None:
    """Return the conversation in whose context a span of another trace begins.

    If there is none, the span may belong to any of them, which all get to know of it.
    """
    is_late = trace_id(span) in _over
    begins_trace = span.parent is None or span.parent.is_remote
    if not _logs or not (begins_trace or is_late) or scope_of(span).startswith(names.TRACER):
        return None
    current = owner.get()
    if isinstance(current, SpanLog) and current.thread_id in _logs:
        _by_trace[trace_id(span)] = current
        return current
    if current != "harness":
        for log in _logs.values():
            log.note_unowned(span, is_late=is_late)
    return None


def _end(span: ReadableSpan) -> None:
    log = _log_of(span)
    if log is not None:
        log.end(span)
        if trace_id(span) not in _by_trace and span_id(span) not in _by_span:
            _by_span[span_id(span)] = log
            _assign_inner_spans(log)
    elif _logs:
        _unassigned.append(span)
        _count_stray(1)


def _log_of(span: ReadableSpan) -> SpanLog | None:
    if not _logs:
        return None
    log = _by_trace.get(trace_id(span)) or _by_span.get(span_id(span))
    if log is None:
        log = _logs.get(str(attributes_of(span).get(THREAD_ID)))
    return log or _by_span.get(parent_id(span) or 0)


def _assign_inner_spans(log: SpanLog) -> None:
    """Give the conversation the spans inside of one that was assigned when it ended."""
    for span in reversed([*_unassigned]):
        if _by_span.get(parent_id(span) or 0) is log:
            _by_span[span_id(span)] = log
            _unassigned.remove(span)
            _count_stray(-1)
            log.end(span)


def _count_stray(change: int) -> None:
    for log in _logs.values():
        log.strays += change
