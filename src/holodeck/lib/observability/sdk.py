"""The adapter for the OpenTelemetry SDK and its exporters."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holodeck.errors import ConfigError
from holodeck.lib.observability import names
from holodeck.models.observability import (
    ConsoleExporterConfig,
    ExportersConfig,
    ObservabilityConfig,
    OTLPExporterConfig,
    TracingConfig,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

TRACES_PATH = "/v1/traces"


@dataclass(frozen=True)
class Pipeline:
    """A tracer whose spans go to exporters."""

    tracer: "Tracer"
    shut_down: Callable[[], None]
    """Sends everything; blocks."""
    give_up: Callable[[], None]
    """Stops attempts to send."""


def start_pipeline(config: ObservabilityConfig, resource: dict[str, str]) -> Pipeline:
    """Return a pipeline to the exporters of `config`; the global tracer provider stays as it is.

    Raises ConfigError.
    """
    exporters = [_exporter(one) for one in _enabled_exporters(config.exporters)]
    provider = _provider(config.traces, resource)
    for exporter in exporters:
        provider.add_span_processor(_batches(config.traces, exporter))

    def give_up() -> None:
        for exporter in exporters:
            exporter.shutdown()

    tracer = provider.get_tracer(names.TRACER, schema_url=names.SCHEMA_URL)
    return Pipeline(tracer, provider.shutdown, give_up)


def _enabled_exporters(config: ExportersConfig) -> list[ConsoleExporterConfig | OTLPExporterConfig]:
    named = [exporter for exporter in (config.console, config.otlp) if exporter is not None]
    if not named:
        return [ConsoleExporterConfig()]
    enabled = [exporter for exporter in named if exporter.enabled]
    if not enabled:
        raise ConfigError(
            "observability.exporters",
            "every exporter is disabled; enable one or write 'observability: {enabled: false}'",
        )
    return enabled


def _provider(traces: TracingConfig, resource: dict[str, str]) -> "TracerProvider":
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    return TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(traces.sample_rate)),
        resource=Resource.create(resource),
        shutdown_on_exit=False,
    )


def _batches(traces: TracingConfig, exporter: "SpanExporter") -> "SpanProcessor":
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return BatchSpanProcessor(
        exporter,
        max_queue_size=traces.max_queue_size,
        max_export_batch_size=traces.max_export_batch_size,
        schedule_delay_millis=traces.schedule_delay_millis,
    )


def _exporter(config: ConsoleExporterConfig | OTLPExporterConfig) -> "SpanExporter":
    return _otlp(config) if isinstance(config, OTLPExporterConfig) else _console(config)


def _console(config: ConsoleExporterConfig) -> "SpanExporter":
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    return ConsoleSpanExporter(
        out=sys.stderr, formatter=lambda ended: _as_json(ended, config) + "\n"
    )


def _as_json(ended: "ReadableSpan", config: ConsoleExporterConfig) -> str:
    document: dict[str, Any] = json.loads(ended.to_json())
    if not config.include_timestamps:
        del document["start_time"], document["end_time"]
        for event in document["events"]:
            del event["timestamp"]
    return json.dumps(document, indent=2 if config.pretty_print else None, ensure_ascii=False)


def _otlp(config: OTLPExporterConfig) -> "SpanExporter":
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(
        endpoint=_traces_url(config.endpoint),
        headers={name: value.get_secret_value() for name, value in config.headers.items()},
        timeout=config.timeout_ms / 1000,
        compression=Compression.Gzip if config.compression else Compression.NoCompression,
    )


def _traces_url(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(
            "observability.exporters.otlp.endpoint",
            f"{endpoint!r} is not a URL; write one such as 'http://localhost:4318'",
        )
    base = endpoint.rstrip("/")
    return base if base.endswith(TRACES_PATH) else base + TRACES_PATH
