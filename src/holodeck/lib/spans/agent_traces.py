"""The traces of an agent in a run: each call has its own, from wherever its spans come."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Literal

from holodeck.errors import ConfigError
from holodeck.lib.observability import names
from holodeck.lib.observability.tracing import begin_trace
from holodeck.lib.spans.receiver import MAX_VALUE, OtlpReceiver, close_receiver, open_receiver
from holodeck.lib.spans.store import (
    SpanCollector,
    SpanStore,
    attributes_of,
    owner,
    parent_id,
    process_spans,
    span_id,
)
from holodeck.lib.support.text import one_line, plural
from holodeck.models.base import Json
from holodeck.models.cases.matchers import SpanStatus
from holodeck.models.results.evidence import RecordedSpan, Trace

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

QUIET_S = 0.3
"""How long nothing may arrive after the outermost span; exporters send more often."""
EXPORT_DELAY_MS = 200
"""How often the SDK of an agent in a process sends; its default of 5 s would be too late."""
PORT = "observability.receiver.port"
MAX_SPANS = 2_000
"""Of a call."""
MAX_CHARACTERS = 1_000_000
"""Of names and values of attributes in the result of a call."""
MAX_NAME = 500
MAX_ATTRIBUTES = 256
"""Of a span; OpenTelemetry keeps 128 by default."""
Place = Literal["built in", "python", "elsewhere"]
"""Where the agent runs: it is holodeck's own, or the user's code in this process, or in another."""
Mask = Callable[[str], str]
"""Removes from a text what results must not contain."""
_STATUSES: Mapping[str, SpanStatus] = {"OK": "ok", "ERROR": "error", "UNSET": "unset"}


class AgentTraces:
    """Collects the spans of the calls of an agent, in this process and from its exporters.

    Args:
        place: Where the agent runs.
        mask: Removes from texts what results must not contain.
        port: Where exporters send to; 0 for a free port.
    """

    def __init__(self, place: Place, mask: Mask = str, port: int = 0) -> None:
        self.place = place
        self.mask = mask
        self.collectors: list[SpanCollector] = []
        """Those that collect."""
        self.receiver: OtlpReceiver | None = None
        """What exporters send to; None if there is none."""
        self._port = port
        # Stores for all of the run, which keep the collectors awake between calls.
        self._made_here = SpanStore(f"holodeck-run-{id(self)}", max_spans=0)
        self._exported = SpanStore(f"holodeck-run-{id(self)}", max_spans=0)
        self._open = ExitStack()

    async def start(self) -> None:
        """Begin to collect. Raises ConfigError if the port is in use."""
        if self.place != "elsewhere":
            self._collect(process_spans, self._made_here)
            if not self._port:
                return
        try:
            self.receiver = await open_receiver(self._port)
        except OSError as error:
            await self.close()
            raise ConfigError(
                PORT,
                f"port {self._port} of 127.0.0.1 cannot be used: {error.strerror or error}; end"
                " what listens there, or write another port",
            ) from error
        self._collect(self.receiver.collector, self._exported)

    def _collect(self, collector: SpanCollector, store: SpanStore) -> None:
        self._open.enter_context(collector.open(store))
        self.collectors.append(collector)

    async def close(self) -> None:
        """Stop collecting; may be called twice."""
        self._open.close()
        self.collectors.clear()
        receiver, self.receiver = self.receiver, None
        if receiver is not None:
            await close_receiver(receiver)

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables that make the SDK of an agent export to the receiver."""
        if self.receiver is None:
            return {}
        url = self.receiver.url
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            # An SDK prefers these, and the agent may inherit them.
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{url}/v1/traces",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            "OTEL_BSP_SCHEDULE_DELAY": str(EXPORT_DELAY_MS),
        }

    @property
    def notes(self) -> list[str]:
        """What readers of the report must know."""
        late = (
            (self._exported.late, "arrived after the checks; raise 'settle' in 'trace'"),
            (self._made_here.late, "began after its response, so that no check saw them"),
        )
        return [f"{plural(count, 'span')} of the agent {why}" for count, why in late if count]

    def enter_case(self) -> None:
        """Mark what follows in this task, other than calls of the agent, as the harness's code."""
        owner.set("harness")

    def call(self) -> "TracedCall":
        """Return the trace of a call of the agent."""
        return TracedCall(self)

    def why_nothing(self) -> str:
        """Return what may be the reason that no span has arrived."""
        if self.receiver is None:
            return "its code made none that belong to this call"
        if self.receiver.problem is not None:
            return f"a request could not be read: {self.receiver.problem}"
        if self._exported.strays:
            return (
                f"{plural(self._exported.strays, 'span')} of other traces arrived, so it does not"
                " continue the trace of the 'traceparent' that it gets"
            )
        if not self.receiver.requests:
            return (
                "it has sent nothing; its exporter must send OTLP over HTTP to"
                f" {self.receiver.url} (OTEL_EXPORTER_OTLP_ENDPOINT), and often enough"
                f" (OTEL_BSP_SCHEDULE_DELAY={EXPORT_DELAY_MS})"
            )
        return "it has sent only those of other calls"


class TracedCall:
    """One call of the agent, with a trace of its own.

    Args:
        traces: Those of the agent.
    """

    def __init__(self, traces: AgentTraces) -> None:
        self._traces = traces
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        ids = SystemRandom()
        self._trace_id, self._span_id = ids.getrandbits(128), ids.getrandbits(64)
        trace = format(self._trace_id, "032x")
        self._store = SpanStore(
            trace, max_spans=MAX_SPANS, value_limit=MAX_VALUE, on_end=self._notify
        )
        self._open = ExitStack()
        for collector in traces.collectors:
            self._open.enter_context(collector.open(self._store, trace))

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make the agent's spans in the block parts of the trace, also behind a URL.

        The trace has no span of holodeck's around them, and it is recorded whatever the sampler of
        holodeck's own spans says.
        """
        if self._traces.place != "elsewhere":
            process_spans.watch(self._store)
        if self._traces.place == "built in":
            process_spans.watch_run(self._store)
        self._store.unowned = None  # what began before is not the agent's
        token = owner.set(self._store)
        try:
            with begin_trace(self._trace_id, self._span_id):
                yield
        finally:
            owner.reset(token)

    async def wait(self, limit_s: float) -> Trace:
        """Return the spans once they have arrived, or after `limit_s` seconds."""
        ends = time.monotonic() + limit_s
        while True:
            self._changed.clear()
            wait_s = min(self._wait_s(), ends - time.monotonic())
            if wait_s <= 0:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
        problem = self._problem(limit_s)
        # In a thread, as patterns of the user mask the texts.
        spans = await asyncio.to_thread(record_spans, self._store.spans, self._traces.mask)
        return Trace(spans=spans, problem=problem)

    def close(self) -> None:
        """Take no more spans; may be called twice."""
        self._open.close()

    def _notify(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._changed.set)

    def _wait_s(self) -> float:
        """Return how long nothing may arrive until these are all spans."""
        if self._store.open_names:
            return math.inf
        if self._traces.receiver is None:
            return 0.0
        is_partial = self._store.orphans(self._span_id) and not self._store.dropped
        if is_partial or not self._store.spans:
            return math.inf
        return self._store.last_end + QUIET_S - time.monotonic()

    def _problem(self, limit_s: float) -> str:
        """Return why there may be further spans; empty if these are all."""
        store, open_names = self._store, self._store.open_names
        orphans = store.orphans(self._span_id)
        if store.unowned is not None:
            return (
                f"the span {one_line(store.unowned, 80)!r} began while the agent answered, in a"
                " thread or task without the context of a call, so that it may belong to this one;"
                " start it with contextvars.copy_context().run"
            )
        if not (open_names or store.spans):
            why = "; ".join(store.gaps) or self._traces.why_nothing()
            return f"no spans of the agent were seen: {why}"
        if store.dropped:
            kept = len(store.spans)
            return f"the agent made {kept + store.dropped:,} spans, and only {kept:,} are kept"
        if open_names:
            name = one_line(open_names[0], 80)
            return f"the span {name!r} had not ended {limit_s:g} s after the response ('settle')"
        if orphans:
            name = one_line(orphans[0].name, 80)
            return (
                f"the span around {name!r} had not arrived {limit_s:g} s after the response; let"
                " the agent export sooner (OTEL_BSP_SCHEDULE_DELAY), or raise 'settle'"
            )
        return ""


def record_spans(spans: Iterable["ReadableSpan"], mask: Mask) -> list[RecordedSpan]:
    """Return the spans as results keep them: bounded, and masked."""
    recorded = []
    room = MAX_CHARACTERS
    for span in spans:
        record = _record(span, mask)
        size = sum(len(str(value)) + len(name) for name, value in record.attributes.items())
        if size > room:
            empty = dict.fromkeys(record.attributes, "")
            record, size = record.model_copy(update={"attributes": empty, "cut": [*empty]}), 0
        room -= size
        recorded.append(record)
    return recorded


def _record(span: "ReadableSpan", mask: Mask) -> RecordedSpan:
    parent = parent_id(span)
    values: dict[str, Json] = {}
    cut = []
    for name, value in [*attributes_of(span).items()][:MAX_ATTRIBUTES]:
        values[name[:MAX_NAME]], is_cut = _bounded(value, mask)
        if is_cut:
            cut.append(name[:MAX_NAME])
    return RecordedSpan(
        name=mask(span.name[:MAX_NAME]),
        span_id=format(span_id(span), "016x"),
        parent_id="" if parent is None else format(parent, "016x"),
        service=mask(str(span.resource.attributes.get(names.SERVICE_NAME, ""))[:MAX_NAME]),
        started_ns=span.start_time or 0,
        ended_ns=span.end_time or span.start_time or 0,
        status=_STATUSES[span.status.status_code.name],
        status_message=mask((span.status.description or "")[:MAX_NAME]),
        attributes=values,
        cut=cut,
    )


def _bounded(value: Any, mask: Mask) -> tuple[Json, bool]:
    """Return a value as JSON has it, and whether it is cut."""
    if isinstance(value, str):
        return mask(value[:MAX_VALUE]), len(value) > MAX_VALUE
    if isinstance(value, bytes):
        return _bounded(value.hex(), mask)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value), False
    if not isinstance(value, list | tuple):
        return value, False
    items: list[Json] = []
    room = MAX_VALUE
    for item in value:
        bounded, is_cut = _bounded(item, mask)
        room -= len(bounded) + 1 if isinstance(bounded, str) else 8
        if is_cut or room < 0:
            return items, True
        items.append(bounded)
    return items, False
