"""Tracing: `span()` around everything that takes time, and exporters for a run's spans."""

from holodeck.lib.observability.propagation import (
    continue_trace,
    continue_trace_of_message,
    ensure_trace,
    propagation_headers,
)
from holodeck.lib.observability.tracing import (
    ObservabilityContext,
    Span,
    get_tracer,
    initialize_observability,
    record_error,
    set_content,
    shutdown_observability,
    span,
)

__all__ = [
    "ObservabilityContext",
    "Span",
    "continue_trace",
    "continue_trace_of_message",
    "ensure_trace",
    "get_tracer",
    "initialize_observability",
    "propagation_headers",
    "record_error",
    "set_content",
    "shutdown_observability",
    "span",
]
