"""The telemetry of a run: spans around everything that takes time, with metrics where they end.

Spans are always on. Until something imports `opentelemetry.trace`, no SDK can be set up, and a span
costs no more than a `with`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from holodeck.errors import ConfigError
from holodeck.lib.observability import names
from holodeck.lib.support.patterns import compile_pattern, replace
from holodeck.lib.support.text import message_of

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

    from holodeck.lib.observability.meters import Meters
    from holodeck.lib.observability.pipelines import Pipelines
    from holodeck.models.observability import ObservabilityConfig


logger = logging.getLogger(__name__)

MOST_CHARACTERS = 20_000
MASK = "***"
MASK_SECONDS = 0.2
TOO_SLOW = f"{MASK} (not shown: a redaction pattern takes too long)"


class Content:
    """Prepares text for spans: masks what a redaction pattern matches, and cuts long text."""

    def __init__(
        self, redaction_patterns: Sequence[str] = (), clean: Callable[[str], str] = str
    ) -> None:
        self._clean = clean
        self._patterns = []
        for index, pattern in enumerate(redaction_patterns):
            try:
                self._patterns.append(compile_pattern(pattern))
            except ConfigError as error:
                field = f"observability.traces.redaction_patterns[{index}]"
                raise ConfigError(field, error.message) from error

    def to_text(self, value: Any) -> str:
        """Return the value as text, masked; a value that is not text as JSON."""
        if isinstance(value, str):
            return self.mask(value)
        # The texts first: JSON writes line breaks and quotes in another way than patterns do.
        masked = _map_texts(json.loads(json.dumps(value, default=repr)), self.mask)
        return self.mask(json.dumps(masked, ensure_ascii=False))

    def mask(self, text: str) -> str:
        """Return the text as a span may hold it."""
        # Cut before masking, to bound the time of the patterns; the margin keeps a secret at the
        # cut whole, so that it is masked.
        text = self._clean(text[: 2 * MOST_CHARACTERS])
        try:
            for pattern in self._patterns:
                text = replace(pattern, MASK, text, MASK_SECONDS)
        except TimeoutError:
            return TOO_SLOW
        if len(text) <= MOST_CHARACTERS:
            return text
        return f"{text[:MOST_CHARACTERS]}… (cut)"


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value of JSON with its texts changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _map_texts(item, change) for key, item in value.items()}
    return value


Attribute = str | bool | int | float | Sequence[str] | None
"""A value of a span; None is left out."""

Attributes = Mapping[str, Attribute]
Kind = Literal["internal", "client"]


@dataclass(frozen=True)
class Tracing:
    """The tracer of a run, its metrics, and what they may contain."""

    tracer: Tracer
    content: Content | None
    """None: spans contain no content."""
    clean: Callable[[str], str] = str
    """Removes secrets from all text of spans."""
    evaluation_content: Content | None = None
    """None: spans and events of metrics contain no content."""
    meters: Meters | None = None
    """None: no metrics are recorded."""
    log_event: Callable[[str, Mapping[str, Any]], None] | None = None
    """Sends an event with the log records, too; None: it is only in its span."""


_active: list[Tracing] = []
"""The runs that are being traced; the last gets the spans."""


def activate(tracing: Tracing) -> None:
    """Send new spans to this tracer."""
    _active.append(tracing)


def deactivate(tracing: Tracing) -> None:
    """Send no more spans to this tracer; may be called twice."""
    if tracing in _active:
        _active.remove(tracing)


FLUSH_S = 5.0
"""How long the end of a run waits for exporters."""
INTERRUPTED_S = 0.5
"""How long a run that was interrupted waits for them."""


@dataclass(frozen=True)
class ObservabilityContext:
    """The telemetry of a run."""

    tracing: Tracing | None = None
    """None: the run has none."""
    pipelines: Pipelines | None = None


def initialize_observability(
    config: ObservabilityConfig | None,
    agent_name: str,
    clean: Callable[[str], str] = str,
    base_dir: Path | None = None,
    instance: str | None = None,
) -> ObservabilityContext:
    """Send spans, metrics and log records to the exporters of `config`.

    Does nothing unless it is enabled.

    Args:
        config: What is sent, and where; None for nothing.
        agent_name: The agent under test.
        clean: Removes secrets from text.
        base_dir: Where relative paths start; None for the working folder.
        instance: The name of this process, where several send for the same run.

    Raises:
        ConfigError: An exporter cannot be used.
    """
    if config is None or not config.enabled:
        return ObservabilityContext()
    if not (config.traces.enabled or config.metrics.enabled or config.logs.enabled):
        return ObservabilityContext()
    # Imported here because few runs have telemetry.
    from holodeck.lib.observability.pipelines import Pipelines  # noqa: PLC0415

    attributes = {names.SERVICE_NAME: f"holodeck-{agent_name}"} | config.resource_attributes
    if config.service_name:
        attributes[names.SERVICE_NAME] = config.service_name
    if instance:  # else the sums of several processes were taken for a sum that goes up and down
        attributes[names.SERVICE_INSTANCE] = instance
    content = Content(config.traces.redaction_patterns, clean)
    pipelines = Pipelines(config, attributes, base_dir or Path.cwd(), clean, content.mask)
    pipelines.start()
    sender = pipelines.log_sender
    tracing = Tracing(
        pipelines.tracer,
        content if config.traces.capture_content else None,
        clean,
        content if config.traces.capture_evaluation_content else None,
        pipelines.meters,
        None if sender is None else sender.emit_event,
    )
    activate(tracing)
    return ObservabilityContext(tracing, pipelines)


def shutdown_observability(
    context: ObservabilityContext, timeout: float = FLUSH_S, *, interrupted: bool = False
) -> None:
    """Send the rest within `timeout` seconds; what did not arrive is logged once.

    A run that was `interrupted` waits for INTERRUPTED_S at most. May be called twice.
    """
    if context.tracing is None or context.pipelines is None:
        return
    deactivate(context.tracing)
    for line in context.pipelines.close(min(timeout, INTERRUPTED_S) if interrupted else timeout):
        logger.warning("%s", line)


class Span:
    """An open span; without a tracer, it ignores everything."""

    def __init__(self, otel: OtelSpan | None = None, tracing: Tracing | None = None) -> None:
        self._otel = otel if otel is not None and otel.is_recording() else None
        self._log_event = None if tracing is None else tracing.log_event
        self.measured: dict[str, Any] | None = None
        """The attributes, for metrics; None if none are recorded."""

    @property
    def is_recorded(self) -> bool:
        """Whether a tracer records it, or its metrics are recorded."""
        return self._otel is not None or self.measured is not None

    @property
    def has_content(self) -> bool:
        """Whether what is added goes somewhere."""
        return self._otel is not None

    def set(self, attributes: Attributes) -> None:
        """Add attributes; those that are None are left out."""
        if self.measured is not None:
            self.measured |= attributes
        if self._otel is not None:
            self._otel.set_attributes(_clean_attributes(attributes))

    def event(self, name: str, attributes: Attributes) -> None:
        """Add an event."""
        if self._otel is not None:
            self._otel.add_event(name, _clean_attributes(attributes))
        if self._log_event is not None:
            self._log_event(name, _clean_attributes(attributes))

    def fail(self, error_type: str, message: str) -> None:
        """Mark as failed; the message is kept only where content is captured."""
        if self.measured is not None:
            self.measured[names.ERROR_TYPE] = error_type
        if self._otel is None:
            return
        content = captured_content()
        shown = None if content is None else _clean(content.mask(message))
        self._otel.set_attribute(names.ERROR_TYPE, error_type)
        self._otel.set_status(_api().Status(_api().StatusCode.ERROR, shown))


_NO_SPAN = nullcontext(Span())
_NO_ATTRIBUTES: Attributes = MappingProxyType({})


def span(
    name: str, attributes: Attributes = _NO_ATTRIBUTES, *, kind: Kind = "internal"
) -> AbstractContextManager[Span]:
    """Open a span around the block; it is marked as failed if the block raises."""
    tracer = _current_tracer()
    return _NO_SPAN if tracer is None else _recorded_span(tracer, name, attributes, kind)


@contextmanager
def _recorded_span(tracer: Tracer, name: str, attributes: Attributes, kind: Kind) -> Iterator[Span]:
    tracing = _active[-1] if _active else None
    meters = None if tracing is None else tracing.meters
    with tracer.start_as_current_span(
        _clean(name),
        kind=_api().SpanKind.CLIENT if kind == "client" else _api().SpanKind.INTERNAL,
        attributes=_clean_attributes(attributes),
        record_exception=False,
        set_status_on_exception=False,
    ) as otel:
        current = Span(otel, tracing)
        measurement = None if meters is None else meters.begin(attributes)
        current.measured = None if measurement is None else measurement.attributes
        try:
            yield current
        except BaseException as error:
            record_error(current, error)
            raise
        finally:
            if measurement is not None:
                measurement.end()


def is_traced() -> bool:
    """Whether telemetry of a run is sent now."""
    return bool(_active)


def get_tracer(name: str = names.TRACER) -> Tracer:
    """Return an OpenTelemetry tracer: that of the run which is traced, else that of the process,
    which does nothing without an SDK."""
    if _active:
        return _active[-1].tracer
    tracer: Tracer = _api().get_tracer(name)
    return tracer


def _current_tracer() -> Tracer | None:
    """Return the tracer that makes spans now; None while no SDK can be set up."""
    if _active:
        return _active[-1].tracer
    if "opentelemetry.trace" not in sys.modules:
        return None
    api = _api()
    if isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return None  # without an SDK the API makes spans that nothing records
    tracer: Tracer = api.get_tracer(names.TRACER, schema_url=names.SCHEMA_URL)
    return tracer


def captured_content() -> Content | None:
    """Return how content is written into spans; None if it is not."""
    return _active[-1].content if _active else None


def evaluation_content() -> Content | None:
    """Return how content is written into spans and events of metrics; None if it is not."""
    return _active[-1].evaluation_content if _active else None


def record_error(current: Span, error: BaseException) -> None:
    """Mark a span as failed, or as cancelled."""
    if isinstance(error, asyncio.CancelledError):
        current.set({names.ERROR_TYPE: "cancelled"})
        return
    current.fail(type(error).__name__, message_of(error))


def set_content(current: Span, key: str, value: Any) -> None:
    """Add an attribute with content, if content is captured."""
    content = captured_content()
    if content is not None and current.has_content:
        current.set({key: content.to_text(value)})


def _clean_attributes(attributes: Attributes) -> dict[str, Any]:
    return {key: _clean_value(value) for key, value in attributes.items() if value is not None}


def _clean_value(value: Attribute) -> Attribute:
    if isinstance(value, str):
        return _clean(value)
    return value if isinstance(value, int | float | None) else [_clean(item) for item in value]


def _clean(text: str) -> str:
    return _active[-1].clean(text) if _active else text


TRACEPARENT = "traceparent"


def propagation_headers() -> dict[str, str]:
    """Return the headers of a request that continues the current trace; {} if there is none."""
    headers: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        # As the process is set up, which may be without W3C's headers.
        from opentelemetry import propagate

        propagate.inject(headers)
        if TRACEPARENT not in headers:
            _w3c().inject(headers)
    return headers


async def continue_trace(request: Any) -> None:
    """Add the headers of the current trace to a request: an event hook for clients of httpx.

    Headers that the request has already are kept.
    """
    for name, value in propagation_headers().items():
        request.headers.setdefault(name, value)


async def continue_trace_of_message(request: Any) -> None:
    """Do the same for a client of MCP, whose calls pass the headers in the `_meta` of a message.

    The SDK sends requests in a task of its own, which does not know the caller's trace.
    """
    meta: Any = {}
    if request.method == "POST" and TRACEPARENT.encode() in request.content:
        params = json.loads(request.content).get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
    if isinstance(meta, dict) and isinstance(meta.get(TRACEPARENT), str):
        request.headers.setdefault(TRACEPARENT, meta[TRACEPARENT])
    await continue_trace(request)


@contextmanager
def continue_run(headers: Mapping[str, str]) -> Iterator[None]:
    """Make spans in the block, and in what is started in it, parts of another process's trace.

    Args:
        headers: What `propagation_headers` returned there.
    """
    if not headers:
        yield
        return
    around = _api().get_current_span(_w3c().extract(headers))
    with _api().use_span(around, record_exception=False, set_status_on_exception=False):
        yield


@contextmanager
def begin_trace(trace_id: int, span_id: int) -> Iterator[None]:
    """Begin a recorded trace that has no span of holodeck's; `span_id` is around its spans."""
    api = _api()
    flags = api.TraceFlags(api.TraceFlags.SAMPLED)
    context = api.SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)
    begun = api.NonRecordingSpan(context)
    with api.use_span(begun, record_exception=False, set_status_on_exception=False):
        yield


def _api() -> Any:
    """Return the OpenTelemetry API, which is slow to import and which most runs do not need."""
    import opentelemetry.trace  # noqa: PLC0415 - see above

    return opentelemetry.trace


def _w3c() -> Any:
    """Return what writes and reads `traceparent`."""
    from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415 - see above

    return tracecontext.TraceContextTextMapPropagator()
