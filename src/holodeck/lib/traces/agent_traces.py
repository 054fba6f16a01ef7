"""The traces of an agent in a run: one for each call, from wherever its spans come."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from random import SystemRandom
from typing import TYPE_CHECKING, Literal

from holodeck.errors import ConfigError
from holodeck.lib.observability.propagation import begin_trace
from holodeck.lib.observability.span_collector import (
    assign_trace,
    collecting,
    watch,
    watch_run,
)
from holodeck.lib.observability.span_log import SpanLog, owner, span_id
from holodeck.lib.support.text import one_line, plural
from holodeck.lib.traces.receiver import OtlpReceiver, close_receiver, open_receiver
from holodeck.lib.traces.span_builder import Mask, span_of
from holodeck.lib.traces.span_store import MAX_SPANS, CallSpans, SpanStore
from holodeck.models.results.spans import Trace

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

QUIET_S = 0.3
"""How long nothing may arrive after the outermost span; exporters send more often."""
EXPORT_DELAY_MS = 200
"""How often the SDK of an agent in a process sends; its default of 5 s would be too late."""
PORT = "observability.receiver.port"
Place = Literal["built in", "python", "elsewhere"]
"""Where the agent runs: it is holodeck's own, or the user's code in this process, or in another."""


class AgentTraces:
    """Collects the spans of the calls of an agent, in this process and from its exporters.

    Args:
        place: Where the agent runs.
        mask: Removes from texts what results must not contain.
        port: Where exporters send to; 0 for a free port.
    """

    def __init__(self, place: Place, mask: Mask = str, port: int = 0) -> None:
        self._place = place
        self._mask = mask
        self._port = port
        self._store = SpanStore()
        self._log = _RunLog(f"holodeck-run-{id(self)}", max_spans=0)
        self._receiver: OtlpReceiver | None = None
        self._open = ExitStack()

    async def start(self) -> None:
        """Begin to collect. Raises ConfigError if the port is in use."""
        if self._place != "elsewhere":
            # A log for all of the run, so that the collector stays between calls.
            self._open.enter_context(collecting(self._log))
            if not self._port:
                return
        try:
            self._receiver = await open_receiver(self._port)
        except OSError as error:
            await self.close()
            raise ConfigError(
                PORT,
                f"port {self._port} of 127.0.0.1 cannot be used: {error.strerror or error}; end"
                " what listens there, or write another port",
            ) from error
        self._store = self._receiver.store

    async def close(self) -> None:
        """Stop collecting; may be called twice."""
        self._open.close()
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            await close_receiver(receiver)

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables that make the SDK of an agent export to the receiver."""
        if self._receiver is None:
            return {}
        url = self._receiver.url
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
            (self._store.late, "arrived after the checks; raise 'settle' in 'trace'"),
            (self._log.late, "began after its response, so that no check saw them"),
        )
        return [f"{plural(count, 'span')} of the agent {why}" for count, why in late if count]

    def enter_case(self) -> None:
        """Mark what follows in this task, other than calls of the agent, as the harness's code."""
        owner.set("harness")

    def call(self) -> "AgentCall":
        """Return the trace of one call of the agent."""
        is_exported = self._receiver is not None
        return AgentCall(
            self._store, self._mask, self._place, self._why_nothing, is_exported=is_exported
        )

    def _why_nothing(self) -> str:
        """Return what may be the reason that no span has arrived."""
        if self._receiver is None:
            return "its code made none that belong to this call"
        if self._receiver.problem is not None:
            return f"a request could not be read: {self._receiver.problem}"
        if self._store.strays:
            return (
                f"{plural(self._store.strays, 'span')} of other traces arrived, so it does not"
                " continue the trace of the 'traceparent' that it gets"
            )
        if not self._receiver.requests:
            return (
                "it has sent nothing; its exporter must send OTLP over HTTP to"
                f" {self._receiver.url} (OTEL_EXPORTER_OTLP_ENDPOINT), and often enough"
                f" (OTEL_BSP_SCHEDULE_DELAY={EXPORT_DELAY_MS})"
            )
        return "it has sent only those of other calls"


class AgentCall:
    """One call of the agent, with a trace of its own.

    Args:
        store: Assigns the spans that exporters send.
        mask: Removes from texts what results must not contain.
        place: Where the agent runs.
        why_nothing: Returns why there may be no spans.
        is_exported: Whether spans may arrive from exporters, after they have ended.
    """

    def __init__(
        self,
        store: SpanStore,
        mask: Mask,
        place: Place,
        why_nothing: Callable[[], str],
        *,
        is_exported: bool,
    ) -> None:
        self._store = store
        self._is_exported = is_exported
        self._place = place
        self._why_nothing = why_nothing
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        ids = SystemRandom()
        self._trace_id, self._span_id = ids.getrandbits(128), ids.getrandbits(64)
        self._spans = CallSpans(
            format(self._trace_id, "032x"), format(self._span_id, "016x"), self._notify, mask
        )
        self._log = _CallLog(self._spans)
        self._open = ExitStack()
        store.open(self._spans)
        if place != "elsewhere":
            self._open.enter_context(collecting(self._log))
            assign_trace(self._log, self._spans.trace_id)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make the agent's spans in the block parts of the trace, also behind a URL.

        The trace has no span of holodeck's around them, and it is recorded whatever the sampler of
        holodeck's own spans says.
        """
        if self._place != "elsewhere":
            watch(self._log)
        if self._place == "built in":
            watch_run(self._log)
        self._log.is_in_flight = True
        token = owner.set(self._log)
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
                return Trace(spans=self._spans.spans, problem=self._problem(limit_s))
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    def close(self) -> None:
        """Take no more spans; may be called twice."""
        self._store.close(self._spans)
        self._open.close()

    def _notify(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._changed.set)

    def _wait_s(self) -> float:
        """Return how long nothing may arrive until these are all spans."""
        if self._log.open_names:
            return float("inf")
        if not self._is_exported:
            return 0.0
        is_partial = bool(self._spans.lacking) and not self._spans.dropped
        if is_partial or not self._spans.spans:
            return float("inf")
        return self._spans.changed + QUIET_S - time.monotonic()

    def _problem(self, limit_s: float) -> str:
        """Return why there may be further spans; empty if these are all."""
        open_names, lacking = self._log.open_names, self._spans.lacking
        if self._log.unowned is not None:
            return (
                f"the span {one_line(self._log.unowned, 80)!r} began while the agent answered, in a"
                " thread or task without the context of a call, so that it may belong to this one;"
                " start it with contextvars.copy_context().run"
            )
        if not (open_names or self._spans.spans):
            why = "; ".join(self._log.gaps) or self._why_nothing()
            return f"no spans of the agent were seen: {why}"
        if self._spans.dropped:
            number = MAX_SPANS + self._spans.dropped
            return f"the agent made {number:,} spans, and only {MAX_SPANS:,} are kept"
        if open_names:
            name = one_line(open_names[0], 80)
            return f"the span {name!r} had not ended {limit_s:g} s after the response ('settle')"
        if lacking:
            name = one_line(lacking[0].name, 80)
            return (
                f"the span around {name!r} had not arrived {limit_s:g} s after the response; let"
                " the agent export sooner (OTEL_BSP_SCHEDULE_DELAY), or raise 'settle'"
            )
        return ""


class _RunLog(SpanLog):
    """Keeps the collector between calls, and counts the spans of calls that are over."""

    late = 0

    def note_unowned(self, span: "ReadableSpan", *, is_late: bool) -> None:  # noqa: ARG002
        """Count a span that continues the trace of a call that is over."""
        self.late += is_late


class _CallLog(SpanLog):
    """Takes the spans of this process that belong to a call."""

    def __init__(self, spans: CallSpans) -> None:
        super().__init__(spans.trace_id)
        self._call = spans
        self._names: dict[int, str] = {}
        self.is_in_flight = False
        """Whether the agent has been called."""
        self.unowned: str | None = None
        """The name of a span since then that may belong to any call; None without one."""

    @property
    def open_names(self) -> list[str]:
        """The names of the spans that have begun but not ended."""
        return [*self._names.values()]

    def note_unowned(self, span: "ReadableSpan", *, is_late: bool) -> None:  # noqa: ARG002
        """Remember a span that may belong to this call or to another."""
        if self.is_in_flight and self.unowned is None:
            self.unowned = span.name

    def start(self, span: "ReadableSpan") -> None:
        """Take a span that has begun."""
        self._names[span_id(span)] = span.name

    def end(self, span: "ReadableSpan") -> None:
        """Take a span that has ended."""
        self._names.pop(span_id(span), None)
        self._call.add(span_of(span, self._call.mask))
