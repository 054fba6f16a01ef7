"""Where traces go."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, SecretStr, model_validator

from holodeck.models.base import Milliseconds, Model, NonBlank, Ratio


class TracingConfig(Model):
    """Which spans are kept and what they may say."""

    enabled: bool = True
    sample_rate: Ratio = 1.0
    """Share of runs that are traced."""
    capture_content: bool = False
    """Whether inputs, answers, tool arguments and results are written into spans."""
    redaction_patterns: list[NonBlank] = []
    """Regular expressions; what they match in captured content becomes ***."""
    max_queue_size: Annotated[int, Field(gt=0)] = 2048
    max_export_batch_size: Annotated[int, Field(gt=0)] = 512
    schedule_delay_millis: Annotated[int, Field(ge=100)] = 2000

    @model_validator(mode="after")
    def _batches_fit_the_queue(self) -> "TracingConfig":
        if self.max_export_batch_size > self.max_queue_size:
            raise ValueError("'max_export_batch_size' is larger than 'max_queue_size'")
        return self


class ConsoleExporterConfig(Model):
    """Spans as JSON on stderr."""

    enabled: bool = True
    pretty_print: bool = True
    include_timestamps: bool = True


class OTLPExporterConfig(Model):
    """Spans to a collector over HTTP."""

    not_yet: ClassVar = {"insecure": "it belongs to gRPC"}

    enabled: bool = True
    endpoint: NonBlank = "http://localhost:4318"
    """Base URL of the collector; `/v1/traces` is added where it is missing."""
    protocol: Literal["http"] = "http"
    headers: dict[str, SecretStr] = {}
    timeout_ms: Milliseconds = 30_000
    compression: Literal["gzip"] | None = None


class ExportersConfig(Model):
    """Where spans are sent; none named means the console."""

    not_yet: ClassVar = {"prometheus": "metrics", "azure_monitor": "Azure Monitor"}

    console: ConsoleExporterConfig | None = None
    otlp: OTLPExporterConfig | None = None


class ObservabilityConfig(Model):
    """OpenTelemetry traces of a run."""

    not_yet: ClassVar = {"metrics": "OpenTelemetry metrics", "logs": "OpenTelemetry logs"}

    enabled: bool = False
    service_name: NonBlank | None = None
    """`holodeck-<agent name>` if not given."""
    traces: TracingConfig = TracingConfig()
    exporters: ExportersConfig = ExportersConfig()
    resource_attributes: dict[str, str] = {}
