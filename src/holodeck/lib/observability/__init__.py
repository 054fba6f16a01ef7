"""Tracing: `span()` around everything that takes time, and exporters for a run's spans."""

from holodeck.lib.observability.tracing import (
    ObservabilityContext,
    Span,
    get_tracer,
    initialize_observability,
    propagation_headers,
    record_error,
    set_content,
    shutdown_observability,
    span,
)

__all__ = [
    "ObservabilityContext",
    "Span",
    "get_tracer",
    "initialize_observability",
    "propagation_headers",
    "record_error",
    "set_content",
    "shutdown_observability",
    "span",
]
