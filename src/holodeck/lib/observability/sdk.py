"""The adapter for the OpenTelemetry SDK: providers of a run, which are not those of the process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import NoOpTracer

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.observability import names
from holodeck.lib.observability.delivery import Exporter
from holodeck.lib.observability.exporters import (
    PrometheusEndpoint,
    azure_exporter,
    console_exporter,
    otlp_exporter,
)
from holodeck.lib.observability.otlp import otlp_target
from holodeck.models.observability import (
    ConsoleExporterConfig,
    ExportersConfig,
    MetricsConfig,
    ObservabilityConfig,
    TracingConfig,
)

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import Tracer

logger = logging.getLogger(__name__)


@dataclass
class Pipelines:
    """What spans, metrics and log records of a run go through."""

    tracer: Tracer
    meter_provider: MeterProvider | None = None
    logger_provider: LoggerProvider | None = None
    exporters: list[Exporter] = field(default_factory=list)
    flushes: dict[str, Callable[[], None]] = field(default_factory=dict)
    """By signal: sends the rest and shuts down; blocks."""
    endpoint: PrometheusEndpoint | None = None

    def give_up(self) -> None:
        """Make running flushes end soon."""
        for exporter in self.exporters:
            exporter.shutdown()


def start_pipelines(
    config: ObservabilityConfig, attributes: dict[str, str], base_dir: Path
) -> Pipelines:
    """Return the pipelines to the exporters of `config`. Raises ConfigError."""
    from opentelemetry.sdk.resources import Resource

    exporters = _with_default(config.exporters)
    resource = Resource.create(attributes)
    started = Pipelines(NoOpTracer())
    if config.traces.enabled:
        _start_traces(started, config.traces, _exporters(exporters, "traces", base_dir), resource)
    if config.metrics.enabled:
        _start_metrics(started, config.metrics, exporters, resource, base_dir)
    if config.logs.enabled:
        _start_logs(started, _exporters(exporters, "logs", base_dir), resource)
    return started


def _with_default(config: ExportersConfig) -> ExportersConfig:
    """Return the exporters, of which at least one is enabled. Raises ConfigError."""
    named = [config.console, config.otlp, config.prometheus, config.azure_monitor]
    chosen = [exporter for exporter in named if exporter is not None]
    if not chosen:
        return ExportersConfig(console=ConsoleExporterConfig())
    if not any(exporter.enabled for exporter in chosen):
        raise ConfigError(
            "observability.exporters",
            "every exporter is disabled; enable one or write 'observability: {enabled: false}'",
        )
    return config


def _exporters(config: ExportersConfig, signal: str, base_dir: Path) -> list[Exporter]:
    """Return the exporters of a signal that send it somewhere. Raises ConfigError."""
    sending = []
    for make, location in _makers(config, base_dir):
        try:
            exporter = make(signal)
        except MissingExtra as error:
            logger.info("%s", error)  # a finding of the checks before the run says so
            continue
        if exporter is not None:
            sending.append(Exporter(exporter, signal, location))
    return sending


def _makers(config: ExportersConfig, base_dir: Path) -> Iterator[tuple[Callable[[str], Any], str]]:
    """Yield what makes the exporter of a signal, and where it sends. Raises ConfigError."""
    console, otlp, azure = config.console, config.otlp, config.azure_monitor
    if console is not None and console.enabled:
        yield partial(console_exporter, console), "the console"
    if otlp is not None and otlp.enabled:
        yield partial(otlp_exporter, otlp), f"the OTLP endpoint {otlp_target(otlp).endpoint}"
    if azure is not None and azure.enabled:
        yield partial(azure_exporter, azure, base_dir), "Azure Monitor"


def _start_traces(
    started: Pipelines, config: TracingConfig, exporters: list[Exporter], resource: Resource
) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    if not exporters:
        return
    sampled = TraceIdRatioBased(config.sample_rate)
    # A trace that comes from elsewhere is one that a trace check began.
    provider = TracerProvider(
        sampler=ParentBased(sampled, remote_parent_sampled=sampled),
        resource=resource,
        shutdown_on_exit=False,
    )
    for exporter in exporters:
        provider.add_span_processor(
            BatchSpanProcessor(
                _as_any(exporter),
                max_queue_size=config.max_queue_size,
                max_export_batch_size=config.max_export_batch_size,
                schedule_delay_millis=config.schedule_delay_millis,
            )
        )
    started.tracer = provider.get_tracer(names.TRACER, schema_url=names.SCHEMA_URL)
    started.exporters += exporters
    started.flushes["traces"] = provider.shutdown


def _start_metrics(
    started: Pipelines,
    config: MetricsConfig,
    exporters: ExportersConfig,
    resource: Resource,
    base_dir: Path,
) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader

    sending = _exporters(exporters, "metrics", base_dir)
    readers: list[MetricReader] = [
        PeriodicExportingMetricReader(
            _as_any(exporter), export_interval_millis=config.export_interval_ms
        )
        for exporter in sending
    ]
    endpoint = None
    if exporters.prometheus is not None and exporters.prometheus.enabled:
        try:
            endpoint = PrometheusEndpoint(exporters.prometheus, base_dir)
            readers.append(endpoint.reader)
        except MissingExtra as error:
            logger.info("%s", error)  # as above
    if not readers:
        return
    provider = MeterProvider(readers, resource, shutdown_on_exit=False)

    def flush() -> None:
        try:
            if endpoint is not None:
                endpoint.close()
        finally:
            provider.shutdown()

    started.meter_provider, started.endpoint = provider, endpoint
    started.exporters += sending
    started.flushes["metrics"] = flush


def _start_logs(started: Pipelines, exporters: list[Exporter], resource: Resource) -> None:
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    if not exporters:
        return
    provider = LoggerProvider(resource, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_log_record_processor(BatchLogRecordProcessor(_as_any(exporter)))
    started.logger_provider = provider
    started.exporters += exporters
    started.flushes["logs"] = provider.shutdown


def _as_any(exporter: Exporter) -> Any:
    """Return the exporter for the SDK, which knows only its own classes."""
    return exporter
