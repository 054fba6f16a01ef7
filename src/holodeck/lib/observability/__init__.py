"""Tracing: `span()` everywhere, exporters on request."""
