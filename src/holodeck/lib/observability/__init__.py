"""Traces of a run: `span()` wherever time goes, and the way out for what spans say."""

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
    "get_tracer",
    "initialize_observability",
    "record_error",
    "set_content",
    "shutdown_observability",
    "span",
]
