"""Telemetry: `span()` around everything that takes time, metrics, logs, and their exporters."""

from holodeck.lib.observability.tracing import (
    ObservabilityContext,
    Span,
    continue_run,
    evaluation_content,
    get_tracer,
    initialize_observability,
    is_traced,
    propagation_headers,
    set_content,
    shutdown_observability,
    span,
)

__all__ = [
    "ObservabilityContext",
    "Span",
    "continue_run",
    "evaluation_content",
    "get_tracer",
    "initialize_observability",
    "is_traced",
    "propagation_headers",
    "set_content",
    "shutdown_observability",
    "span",
]
