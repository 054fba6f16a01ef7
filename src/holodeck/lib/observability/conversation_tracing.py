"""The spans around conversations, and a tracer provider of ours for a process that has none.

The process's own provider, whenever it is set, has precedence: the tracers that ours has given to
user code then make their spans with it. Outside of conversations they make none.

Importing this module imports the OpenTelemetry API.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import opentelemetry.trace as api
from opentelemetry.context import Context
from opentelemetry.trace import Link, NoOpTracer, Span, Status, StatusCode, Tracer, TracerProvider

from holodeck.lib.exceptions import describe
from holodeck.lib.observability.span_log import SCOPE

Attributes = Mapping[str, str | int]


def start_trace(name: str, attributes: Attributes, links: Iterable[Span]) -> Span:
    """Start the first span of a new trace, linked with others."""
    contexts = [one.get_span_context() for one in links]
    return api.get_tracer(SCOPE).start_span(
        name,
        context=Context(),
        attributes=attributes,
        links=[Link(one) for one in contexts if one.is_valid],
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
    with api.get_tracer(SCOPE).start_as_current_span(
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


def process_provider() -> Any:
    """Return the tracer provider of this process; None if there is none but ours."""
    provider = api.get_tracer_provider()
    return None if isinstance(provider, api.ProxyTracerProvider | _OurProvider) else provider


def our_provider() -> Any:
    """Make ours the tracer provider of the process, which must have none, and return it."""
    provider = _ours()
    # The public function works once in a process, and the user's call of it would have no effect.
    if hasattr(api, "_TRACER_PROVIDER"):
        api._TRACER_PROVIDER = provider  # noqa: SLF001
    else:
        api.set_tracer_provider(provider)
    return provider


def remove_our_provider() -> None:
    """Leave the process without a tracer provider, if ours is its provider."""
    if isinstance(getattr(api, "_TRACER_PROVIDER", None), _OurProvider):
        api._TRACER_PROVIDER = None  # noqa: SLF001


class _OurProvider(TracerProvider):
    def __init__(self) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        self.sdk = SdkTracerProvider(ALWAYS_ON, Resource.get_empty(), shutdown_on_exit=False)

    def get_tracer(self, *args: Any, **options: Any) -> Tracer:
        return _ForwardingTracer(args, options)

    def add_span_processor(self, span_processor: Any) -> None:
        self.sdk.add_span_processor(span_processor)


class _ForwardingTracer(Tracer):
    """Makes spans with the provider of the moment, as user code keeps its tracers."""

    def __init__(self, args: Any, options: Any) -> None:
        self._arguments = (args, options)
        self._known: tuple[object, Tracer] = (None, NoOpTracer())

    def start_span(self, *args: Any, **options: Any) -> Any:
        return self._tracer.start_span(*args, **options)

    def start_as_current_span(self, *args: Any, **options: Any) -> Any:
        return self._tracer.start_as_current_span(*args, **options)

    @property
    def _tracer(self) -> Tracer:
        provider: Any = api.get_tracer_provider()
        known, tracer = self._known
        if known is not provider:
            args, options = self._arguments
            if isinstance(provider, api.ProxyTracerProvider):
                tracer = NoOpTracer()
            else:
                maker = provider.sdk if isinstance(provider, _OurProvider) else provider
                tracer = maker.get_tracer(*args, **options)
            self._known = (provider, tracer)
        return tracer


@cache
def _ours() -> _OurProvider:
    return _OurProvider()
