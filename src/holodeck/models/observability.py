"""Where traces go."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, SecretStr, model_validator

from holodeck.models.base import Milliseconds, Model, NonBlank, Ratio


class TracingConfig(Model):
    """Which spans are kept and what they may say."""

    enabled: bool = True
    """Whether spans are made."""
    sample_rate: Ratio = 1.0
    """Share of runs that are traced."""
    capture_content: bool = False
    """Whether inputs, answers, tool arguments and results are written into spans."""
    redaction_patterns: list[NonBlank] = []
    """Regular expressions; what they match in captured content becomes ***."""
    max_queue_size: Annotated[int, Field(gt=0)] = 2048
    """Most spans that wait to be sent."""
    max_export_batch_size: Annotated[int, Field(gt=0)] = 512
    """Most spans sent at once."""
    schedule_delay_millis: Annotated[int, Field(ge=100)] = 2000
    """Milliseconds between two sendings."""

    @model_validator(mode="after")
    def _batches_fit_the_queue(self) -> "TracingConfig":
        if self.max_export_batch_size > self.max_queue_size:
            raise ValueError("'max_export_batch_size' is larger than 'max_queue_size'")
        return self


class ConsoleExporterConfig(Model):
    """Spans as JSON on stderr."""

    enabled: bool = True
    """Whether it is used."""
    pretty_print: bool = True
    """Indented JSON instead of a line a span."""
    include_timestamps: bool = True
    """Whether start and end are shown."""


class OTLPExporterConfig(Model):
    """Spans to a collector over HTTP."""

    not_yet: ClassVar = {"insecure": "it belongs to gRPC"}

    enabled: bool = True
    """Whether it is used."""
    endpoint: NonBlank = "http://localhost:4318"
    """Base URL of the collector; `/v1/traces` is added where it is missing."""
    protocol: Literal["http"] = "http"
    """How spans travel."""
    headers: dict[str, SecretStr] = {}
    """Headers of each request; their values are never shown."""
    timeout_ms: Milliseconds = 30_000
    """Milliseconds one sending may take."""
    compression: Literal["gzip"] | None = None
    """How the body is compressed."""


class ExportersConfig(Model):
    """Where spans are sent; none named means the console."""

    not_yet: ClassVar = {"prometheus": "metrics", "azure_monitor": "Azure Monitor"}

    console: ConsoleExporterConfig | None = None
    """Spans on stderr."""
    otlp: OTLPExporterConfig | None = None
    """Spans to a collector."""


class ObservabilityConfig(Model):
    """OpenTelemetry traces of a run."""

    not_yet: ClassVar = {"metrics": "OpenTelemetry metrics", "logs": "OpenTelemetry logs"}

    enabled: bool = False
    """Whether spans are sent anywhere."""
    service_name: NonBlank | None = None
    """`holodeck-<agent name>` if not given."""
    traces: TracingConfig = TracingConfig()
    """Which spans are made."""
    exporters: ExportersConfig = ExportersConfig()
    """Where spans are sent."""
    resource_attributes: dict[str, str] = {}
    """Attributes of every span's resource."""
