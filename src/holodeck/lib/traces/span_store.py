"""The spans of the agent calls that are under way."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from holodeck.lib.traces.span_builder import Mask
from holodeck.models.results.spans import RecordedSpan

MAX_SPANS = 2_000
MAX_CHARACTERS = 1_000_000
"""Of names and values of one call."""


@dataclass
class CallSpans:
    """The spans of one call of the agent, from any thread, up to a limit."""

    trace_id: str
    """32 hexadecimal digits."""
    call_id: str
    """Of the span around those of the agent: 16 hexadecimal digits."""
    on_change: Callable[[], None]
    """Called from any thread when a span has arrived."""
    mask: Mask
    """Removes from texts what results must not contain."""
    dropped: int = 0
    """Spans beyond the limit."""
    changed: float = field(default_factory=time.monotonic)
    """When the last one arrived."""
    _spans: dict[str, RecordedSpan] = field(default_factory=dict)
    _room: int = MAX_CHARACTERS
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, span: RecordedSpan) -> None:
        """Add a span; one that is sent again counts once."""
        with self._lock:
            if span.span_id not in self._spans:
                self._add(span)
            self.changed = time.monotonic()
        self.on_change()

    @property
    def spans(self) -> list[RecordedSpan]:
        """The spans, in the order of their beginnings."""
        with self._lock:
            return sorted(self._spans.values(), key=lambda one: one.started_ns)

    @property
    def lacking(self) -> list[RecordedSpan]:
        """The spans that are inside of one that has not arrived."""
        with self._lock:
            known = {self.call_id, *self._spans}
            return [
                one for one in self._spans.values() if one.parent_id and one.parent_id not in known
            ]

    def _add(self, span: RecordedSpan) -> None:
        size = sum(len(str(value)) + len(name) for name, value in span.attributes.items())
        if len(self._spans) >= MAX_SPANS:
            self.dropped += 1
            return
        if size > self._room:
            update = {"attributes": dict.fromkeys(span.attributes, ""), "cut": [*span.attributes]}
            span, size = span.model_copy(update=update), 0
        self._room -= size
        self._spans[span.span_id] = span


class SpanStore:
    """Assigns the spans that arrive to the calls that are under way, by their trace."""

    def __init__(self) -> None:
        self.strays = 0
        """Spans of other traces."""
        self.late = 0
        """Spans of calls that are over."""
        self._calls: dict[str, CallSpans] = {}
        self._over: set[str] = set()
        self._lock = threading.Lock()

    def open(self, call: CallSpans) -> None:
        """Take spans for a call from now on."""
        with self._lock:
            self._calls[call.trace_id] = call

    def close(self, call: CallSpans) -> None:
        """Take no more spans for a call."""
        with self._lock:
            self._calls.pop(call.trace_id, None)
            self._over.add(call.trace_id)

    def find(self, trace_id: str) -> CallSpans | None:
        """Return the call that a span belongs to; None if there is none, which is counted."""
        with self._lock:
            call = self._calls.get(trace_id)
            if call is None and trace_id in self._over:
                self.late += 1
            elif call is None:
                self.strays += 1
            return call
