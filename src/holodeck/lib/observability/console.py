"""The exporters that write JSON to stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from holodeck.lib.text import inert_json
from holodeck.models.observability import ConsoleExporterConfig

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricsData
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

TIMES = ("start_time", "end_time", "start_time_unix_nano", "time_unix_nano", "timestamp")


def console_exporter(
    config: ConsoleExporterConfig, signal: str
) -> SpanExporter | MetricExporter | None:
    """Return the exporter of `traces` or `metrics`; None for logs, whose lines are on stderr."""
    if signal == "traces":
        return console_spans(config)
    return console_metrics(config) if signal == "metrics" else None


def console_spans(config: ConsoleExporterConfig) -> SpanExporter:
    """Return the exporter that writes a document for each span."""
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    def write(span: ReadableSpan) -> str:
        return _as_json(json.loads(span.to_json()), config)

    return ConsoleSpanExporter(out=sys.stderr, formatter=write)


def console_metrics(config: ConsoleExporterConfig) -> MetricExporter:
    """Return the exporter that writes a document for each metric."""
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

    def write(data: MetricsData) -> str:
        document = json.loads(data.to_json())
        metrics = [
            metric
            for resource in document["resource_metrics"]
            for scope in resource["scope_metrics"]
            for metric in scope["metrics"]
        ]
        return "".join(_as_json(metric, config) for metric in metrics)

    return ConsoleMetricExporter(out=sys.stderr, formatter=write)


def _as_json(document: dict[str, Any], config: ConsoleExporterConfig) -> str:
    shown = document if config.include_timestamps else _without_times(document)
    text = json.dumps(shown, indent=2 if config.pretty_print else None, ensure_ascii=False)
    return inert_json(text) + "\n"


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(one) for key, one in value.items() if key not in TIMES}
    return [_without_times(one) for one in value] if isinstance(value, list) else value
