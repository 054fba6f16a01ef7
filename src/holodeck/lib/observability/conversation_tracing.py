"""The spans around conversations.

Importing this module imports the OpenTelemetry API.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import opentelemetry.trace as api
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, Status, StatusCode

from holodeck.lib.observability import names
from holodeck.lib.support.text import describe

Attributes = Mapping[str, str | int]


def start_trace(name: str, attributes: Attributes, links: Iterable[Span]) -> Span:
    """Start the first span of a new trace, linked with others."""
    contexts = [span.get_span_context() for span in links]
    return api.get_tracer(names.SCENARIO_TRACER).start_span(
        name,
        context=Context(),
        attributes=attributes,
        links=[Link(context) for context in contexts if context.is_valid],
    )


def current_span() -> Span:
    """Return the span that is open in this context; an invalid one without any."""
    return api.get_current_span()


def inside(span: Span) -> AbstractContextManager[object]:
    """Return a context in which new spans are inside of this one, which stays open."""
    return api.use_span(span, record_exception=False, set_status_on_exception=False)


@contextmanager
def open_span(name: str, attributes: Attributes) -> Iterator[None]:
    """Open a span around the block; it has failed if the block raises."""
    with api.get_tracer(names.SCENARIO_TRACER).start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield
        except BaseException as error:
            fail(span, describe(error))
            raise


def fail(span: Span, error: str) -> None:
    """Mark a span as failed."""
    span.set_status(Status(StatusCode.ERROR, error))
