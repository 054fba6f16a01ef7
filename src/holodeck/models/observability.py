"""Where traces go."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, SecretStr, model_validator

from holodeck.models.base import Milliseconds, Model, NonBlank, Ratio


class TracingConfig(Model):
    """Which spans are created, and what they contain."""

    enabled: bool = True
    """Whether spans are created."""
    sample_rate: Ratio = 1.0
    """Share of traced runs."""
    capture_content: bool = False
    """Whether spans contain inputs, responses, tool arguments and results."""
    redaction_patterns: list[NonBlank] = []
    """Regular expressions; their matches in captured content are replaced by ***."""
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


class ConsoleExporterConfig(Model):
    """Spans as JSON on stderr."""

    enabled: bool = True
    """Whether the exporter is used."""
    pretty_print: bool = True
    """Indented JSON instead of one line per span."""
    include_timestamps: bool = True
    """Whether start and end times are included."""


class OTLPExporterConfig(Model):
    """Spans sent to a collector over HTTP."""

    not_supported_yet: ClassVar = {"insecure": "it belongs to gRPC"}

    enabled: bool = True
    """Whether the exporter is used."""
    endpoint: NonBlank = "http://localhost:4318"
    """Base URL of the collector; `/v1/traces` is added if missing."""
    protocol: Literal["http"] = "http"
    """Transport protocol."""
    headers: dict[str, SecretStr] = {}
    """Headers of each request; their values are never printed."""
    timeout_ms: Milliseconds = 30_000
    """Maximum milliseconds of one export."""
    compression: Literal["gzip"] | None = None
    """Compression of the body."""


class ExportersConfig(Model):
    """Destinations of the spans; by default the console."""

    not_supported_yet: ClassVar = {"prometheus": "metrics", "azure_monitor": "Azure Monitor"}

    console: ConsoleExporterConfig | None = None
    """Spans on stderr."""
    otlp: OTLPExporterConfig | None = None
    """Spans sent to a collector."""


class ReceiverConfig(Model):
    """Where holodeck receives the spans of the agent, for checks of `trace`."""

    port: Annotated[int, Field(ge=1, le=65_535)]
    """Port on 127.0.0.1 to which the agent exports with OTLP over HTTP. An agent behind a URL needs
    it; processes that holodeck starts get a free port by environment variables."""


class ObservabilityConfig(Model):
    """OpenTelemetry traces of a run."""

    not_supported_yet: ClassVar = {"metrics": "OpenTelemetry metrics", "logs": "OpenTelemetry logs"}

    enabled: bool = False
    """Whether spans are exported."""
    service_name: NonBlank | None = None
    """Name of the service (default: `holodeck-<agent name>`)."""
    traces: TracingConfig = TracingConfig()
    """Settings of the spans."""
    exporters: ExportersConfig = ExportersConfig()
    """Destinations of the spans."""
    resource_attributes: dict[str, str] = {}
    """Resource attributes of every span."""
    receiver: ReceiverConfig | None = None
    """Where the spans of the agent are received, also without `enabled`."""
