"""Traces of a run: `span()` wherever time goes, and the way out for what spans say."""

from holodeck.lib.observability.setup import (
    ObservabilityContext,
    initialize_observability,
    shutdown_observability,
)
from holodeck.lib.observability.spans import Span, get_tracer, record_error, set_content, span

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
