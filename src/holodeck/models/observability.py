"""Which telemetry of a run is recorded, and where it goes."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, SecretStr, model_validator

from holodeck.models.base import (
    Milliseconds,
    Model,
    NetworkUse,
    NonBlank,
    Ratio,
    ServerAddress,
    WrittenPath,
)


class TracingConfig(Model):
    """Which spans are created, and what they contain."""

    enabled: bool = True
    """Whether spans are created."""
    sample_rate: Ratio = 1.0
    """Share of traced runs."""
    capture_content: bool = False
    """Whether spans contain inputs, responses, tool arguments and results."""
    capture_evaluation_content: bool = False
    """Whether spans and events of metrics contain what was judged, and the reasons."""
    redaction_patterns: list[NonBlank] = []
    """Regular expressions; their matches in captured content and in log records are replaced by
    ***."""
    max_queue_size: Annotated[int, Field(gt=0)] = 2048
    """Maximum number of spans that wait to be exported."""
    max_export_batch_size: Annotated[int, Field(gt=0)] = 512
    """Maximum number of spans in one export."""
    schedule_delay_millis: Annotated[int, Field(ge=100)] = 2000
    """Milliseconds between two exports."""

    @model_validator(mode="after")
    def _batches_fit_the_queue(self) -> "TracingConfig":
        if self.max_export_batch_size > self.max_queue_size:
            raise ValueError("'max_export_batch_size' is larger than 'max_queue_size'")
        return self


class MetricsConfig(Model):
    """Durations, tokens and outcomes as OpenTelemetry metrics."""

    enabled: bool = True
    """Whether metrics are recorded."""
    export_interval_ms: Annotated[int, Field(ge=1000)] = 5000
    """Milliseconds between two exports."""
    include_semantic_kernel_metrics: bool = True
    """Whether durations of tools are also recorded under Semantic Kernel's name,
    `semantic_kernel.function.invocation.duration`."""


class LogsConfig(Model):
    """Log records sent to collectors; the lines on stderr stay as they are."""

    enabled: bool = True
    """Whether log records are sent."""
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    """The lowest level that is sent."""
    include_trace_context: bool = True
    """Whether a record names the span in which it was logged."""
    filter_namespaces: list[NonBlank] = ["semantic_kernel"]
    """The loggers that are sent beside holodeck's own, with those below them; [] for all."""


class ConsoleExporterConfig(Model):
    """Spans and metrics as JSON on stderr."""

    enabled: bool = True
    """Whether the exporter is used."""
    pretty_print: bool = True
    """Indented JSON instead of one line per span or metric."""
    include_timestamps: bool = True
    """Whether start and end times are included."""


class OTLPExporterConfig(Model):
    """Spans, metrics and log records sent to a collector."""

    enabled: bool = True
    """Whether the exporter is used."""
    endpoint: ServerAddress | None = None
    """URL of the collector, without `/v1/traces` (default: `http://localhost:4318`; with `protocol:
    grpc`, `http://localhost:4317`)."""
    protocol: Literal["grpc", "http"] | None = None
    """Transport protocol (default: `grpc` for an endpoint with port 4317, else `http`)."""
    insecure: bool | None = None
    """For gRPC and an endpoint without a scheme: whether the connection is not encrypted (default:
    true)."""
    headers: dict[str, SecretStr] = {}
    """Headers of each request; their values are never printed."""
    timeout_ms: Milliseconds = 30_000
    """Maximum milliseconds of one export."""
    compression: Literal["gzip", "deflate"] | None = None
    """Compression of the body."""


class AzureMonitorExporterConfig(Model):
    """Spans, metrics and log records sent to Application Insights."""

    enabled: bool = False
    """Whether the exporter is used."""
    connection_string: Annotated[SecretStr, NetworkUse.SERVER] | None = None
    """Connection string of the resource; required if enabled."""
    disable_offline_storage: bool = False
    """Whether telemetry that cannot be sent is dropped instead of stored in files."""
    storage_directory: WrittenPath | None = None
    """Folder of these files (default: one in the system's folder for temporary files)."""

    @model_validator(mode="after")
    def _has_a_connection_string(self) -> "AzureMonitorExporterConfig":
        text = self.connection_string
        if self.enabled and (text is None or not text.get_secret_value().strip()):
            raise ValueError(
                "'connection_string' is missing; write"
                " 'connection_string: ${APPLICATIONINSIGHTS_CONNECTION_STRING}'"
            )
        return self


class ExportersConfig(Model):
    """Destinations of the telemetry; by default the console."""

    not_supported_yet: ClassVar = {
        "prometheus": "a run ends before it is scraped; send metrics with 'otlp' to a collector"
    }

    console: ConsoleExporterConfig | None = None
    """Spans and metrics on stderr."""
    otlp: OTLPExporterConfig | None = None
    """Telemetry sent to a collector."""
    azure_monitor: AzureMonitorExporterConfig | None = None
    """Telemetry sent to Azure Monitor."""


class ReceiverConfig(Model):
    """Where holodeck receives the spans of the agent, for checks of `trace`."""

    port: Annotated[int, Field(ge=1, le=65_535)]
    """Port on 127.0.0.1 to which an agent behind a URL exports with OTLP over HTTP."""


class ObservabilityConfig(Model):
    """OpenTelemetry traces, metrics and logs of a run."""

    enabled: bool = False
    """Whether telemetry is exported."""
    service_name: NonBlank | None = None
    """Name of the service (default: `holodeck-<agent name>`)."""
    traces: TracingConfig = TracingConfig.model_construct()
    """Settings of the spans."""
    metrics: MetricsConfig = MetricsConfig.model_construct()
    """Settings of the metrics."""
    logs: LogsConfig = LogsConfig.model_construct()
    """Settings of the log records."""
    exporters: ExportersConfig = ExportersConfig.model_construct()
    """Destinations of the telemetry."""
    resource_attributes: dict[str, str] = {}
    """Resource attributes of everything that is exported."""
    receiver: ReceiverConfig | None = None
    """Where the spans of the agent are received, also without `enabled`."""
