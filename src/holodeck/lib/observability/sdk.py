"""The adapter for the OpenTelemetry SDK: providers and exporters of a run.

The providers are not those of the process. Exporters have the names under which OpenTelemetry's
packages register them.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import NoOpTracer

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.observability import names
from holodeck.lib.observability.delivery import Exporter
from holodeck.lib.observability.otlp import FIELD as OTLP_FIELD
from holodeck.lib.observability.otlp import PATHS, otlp_target
from holodeck.lib.support.environment import set_variables
from holodeck.lib.support.safe_paths import written_path
from holodeck.lib.support.text import describe, inert_json
from holodeck.models.observability import (
    AzureMonitorExporterConfig,
    ConsoleExporterConfig,
    ExportersConfig,
    MetricsConfig,
    ObservabilityConfig,
    OTLPExporterConfig,
    PrometheusExporterConfig,
    TracingConfig,
)

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader, MetricsData
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Tracer

logger = logging.getLogger(__name__)

AZURE_FIELD = "observability.exporters.azure_monitor"
PROMETHEUS_FIELD = "observability.exporters.prometheus"
ONLY_TELEMETRY = {
    "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL": "true",
    "APPLICATIONINSIGHTS_SDKSTATS_DISABLED": "true",
    "APPLICATIONINSIGHTS_CONTROLPLANE_DISABLED": "true",
}
"""Without these, the library of Azure reports on itself, and fetches settings."""
TIMES = ("start_time", "end_time", "start_time_unix_nano", "time_unix_nano", "timestamp")


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
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

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


def _load(name: str, signal: str, extra: str, field: str) -> Any:
    """Return the class that a package registers for a signal. Raises MissingExtra."""
    for point in entry_points(group=f"opentelemetry_{signal}_exporter", name=name):
        try:
            return point.load()
        except ImportError as error:
            raise MissingExtra(extra, field) from error
    raise MissingExtra(extra, field)


def otlp_exporter(config: OTLPExporterConfig, signal: str) -> Any:
    """Return the exporter of `traces`, `metrics` or `logs` to a collector. Raises ConfigError."""
    target = otlp_target(config)
    headers = {name: value.get_secret_value() for name, value in config.headers.items()}
    timeout = config.timeout_ms / 1000
    if target.protocol == "http":
        from opentelemetry.exporter.otlp.proto.http import Compression

        return _load("otlp_proto_http", signal, "otlp", OTLP_FIELD)(
            endpoint=target.endpoint + PATHS[signal],
            headers=headers,
            timeout=timeout,
            compression=Compression(config.compression or "none"),
        )
    kind = _load("otlp_proto_grpc", signal, "otlp-grpc", f"{OTLP_FIELD} (gRPC)")
    from grpc import Compression as GrpcCompression

    compressions = {"gzip": GrpcCompression.Gzip, "deflate": GrpcCompression.Deflate}
    return kind(
        endpoint=target.endpoint,
        insecure=target.insecure,
        headers={name.lower(): value for name, value in headers.items()},  # as gRPC wants them
        timeout=timeout,
        compression=compressions.get(config.compression or "", GrpcCompression.NoCompression),
    )


def azure_exporter(config: AzureMonitorExporterConfig, base_dir: Path, signal: str) -> Any:
    """Return the exporter of `traces`, `metrics` or `logs` to Azure. Raises ConfigError."""
    assert config.connection_string is not None  # noqa: S101 - the model requires it
    set_variables(ONLY_TELEMETRY)
    options: dict[str, Any] = {"disable_offline_storage": config.disable_offline_storage}
    if config.storage_directory is not None:
        field = f"{AZURE_FIELD}.storage_directory"
        options["storage_directory"] = str(written_path(config.storage_directory, base_dir, field))
    kind = _load("azure_monitor_opentelemetry_exporter", signal, "azure-monitor", AZURE_FIELD)
    try:
        return kind(connection_string=config.connection_string.get_secret_value(), **options)
    except ValueError as error:
        raise ConfigError(f"{AZURE_FIELD}.connection_string", f"{error}") from error


def console_exporter(config: ConsoleExporterConfig, signal: str) -> Any:
    """Return the exporter of `traces` or `metrics` to stderr; None for logs, which are there."""

    def write_span(span: ReadableSpan) -> str:
        return _as_json(json.loads(span.to_json()), config)

    def write_metrics(data: MetricsData) -> str:
        resources = json.loads(data.to_json())["resource_metrics"]
        scopes = [scope for resource in resources for scope in resource["scope_metrics"]]
        return "".join(_as_json(metric, config) for scope in scopes for metric in scope["metrics"])

    write = {"traces": write_span, "metrics": write_metrics}.get(signal)
    if write is None:
        return None
    return _load("console", signal, "otlp", OTLP_FIELD)(out=sys.stderr, formatter=write)


def _as_json(document: dict[str, Any], config: ConsoleExporterConfig) -> str:
    shown = document if config.include_timestamps else _without_times(document)
    text = json.dumps(shown, indent=2 if config.pretty_print else None, ensure_ascii=False)
    return inert_json(text) + "\n"


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if key not in TIMES}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


class PrometheusEndpoint:
    """Serves the metrics of a run.

    Raises MissingExtra, and ConfigError if the address cannot be used.
    """

    def __init__(self, config: PrometheusExporterConfig, base_dir: Path) -> None:
        try:
            from opentelemetry.exporter.prometheus import PrometheusMetricReader
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError as error:
            raise MissingExtra("prometheus", PROMETHEUS_FIELD) from error
        self._registry = CollectorRegistry()
        self.reader: MetricReader = PrometheusMetricReader(registry=self._registry)
        self._textfile: Path | None = None
        if config.textfile is not None:
            field = f"{PROMETHEUS_FIELD}.textfile"
            self._textfile = written_path(config.textfile, base_dir, field)
        try:
            self._server, _ = start_http_server(config.port, config.host, self._registry)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"{PROMETHEUS_FIELD}.port",
                f"metrics cannot be served at {config.host}:{config.port}{config.path}"
                f" ({describe(error)});"
                " write another 'port' or 'host'",
            ) from error

    def close(self) -> None:
        """Close the endpoint, and write the last values to the file, if one is configured."""
        from prometheus_client import write_to_textfile

        self._server.shutdown()
        self._server.server_close()
        if self._textfile is not None:
            self._textfile.parent.mkdir(parents=True, exist_ok=True)
            write_to_textfile(str(self._textfile), self._registry)
