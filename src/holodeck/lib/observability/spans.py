"""Spans around what takes time: always on, and next to nothing while no SDK is there to see them.

Nobody can have set up an SDK before `opentelemetry.trace` was imported, so until then a span costs
no more than a `with`.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from holodeck.lib.exceptions import message_of
from holodeck.lib.observability import names
from holodeck.lib.observability.content import Content

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

Attribute = str | bool | int | float | Sequence[str] | None
"""What a span can hold; None is left out."""

Attributes = Mapping[str, Attribute]
Kind = Literal["internal", "client"]


@dataclass(frozen=True)
class Tracing:
    """Where the spans of a run go, and what they may say."""

    tracer: "Tracer"
    content: Content | None
    """None: spans hold no content."""
    clean: Callable[[str], str] = str
    """Takes secrets out of whatever text goes into a span."""


_active: list[Tracing] = []
"""The runs that are traced now; the last one gets the spans."""


class Span:
    """A span that is under way."""

    def __init__(self, otel: "OtelSpan | None" = None) -> None:
        self._otel = otel if otel is not None and otel.is_recording() else None

    @property
    def is_recorded(self) -> bool:
        """Whether anybody sees it."""
        return self._otel is not None

    def set(self, attributes: Attributes) -> None:
        """Add attributes; those that are None are left out."""
        if self._otel is not None:
            self._otel.set_attributes(_given(attributes))

    def event(self, name: str, attributes: Attributes) -> None:
        """Add an event."""
        if self._otel is not None:
            self._otel.add_event(name, _given(attributes))

    def fail(self, error_type: str, message: str) -> None:
        """Mark as failed; the message may hold content and is kept only where content is."""
        if self._otel is None:
            return
        content = captured_content()
        shown = None if content is None else _clean(content.masked(message))
        self._otel.set_attribute(names.ERROR_TYPE, error_type)
        self._otel.set_status(_api().Status(_api().StatusCode.ERROR, shown))


_UNSEEN = nullcontext(Span())
_NO_ATTRIBUTES: Attributes = MappingProxyType({})


def span(
    name: str, attributes: Attributes = _NO_ATTRIBUTES, *, kind: Kind = "internal"
) -> AbstractContextManager[Span]:
    """A span around the block; one that raises is marked as failed."""
    tracer = _listening_tracer()
    return _UNSEEN if tracer is None else _seen(tracer, name, attributes, kind)


@contextmanager
def _seen(tracer: "Tracer", name: str, attributes: Attributes, kind: Kind) -> Iterator[Span]:
    with tracer.start_as_current_span(
        _clean(name),
        kind=_kind(kind),
        attributes=_given(attributes),
        record_exception=False,
        set_status_on_exception=False,
    ) as otel:
        current = Span(otel)
        try:
            yield current
        except BaseException as error:
            record_error(current, error)
            raise


def get_tracer(name: str = names.TRACER) -> "Tracer":
    """An OpenTelemetry tracer for spans of one's own: the run's while one is traced, else the
    process's, which does nothing without an SDK."""
    if _active:
        return _active[-1].tracer
    tracer: Tracer = _api().get_tracer(name)
    return tracer


def _listening_tracer() -> "Tracer | None":
    """What makes spans now; None while nobody can be listening."""
    if _active:
        return _active[-1].tracer
    if "opentelemetry.trace" not in sys.modules:
        return None
    api = _api()
    if isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return None  # the API alone, which would only make spans to throw away
    tracer: Tracer = api.get_tracer(names.TRACER, schema_url=names.SCHEMA_URL)
    return tracer


def captured_content() -> Content | None:
    """How content is written into spans; None: not at all."""
    return _active[-1].content if _active else None


def record_error(current: Span, error: BaseException) -> None:
    """Mark a span as failed; one that was cancelled did not fail, but says so."""
    if isinstance(error, asyncio.CancelledError):
        current.set({names.ERROR_TYPE: "cancelled"})
        return
    current.fail(type(error).__name__, message_of(error))


def set_content(current: Span, key: str, value: Any) -> None:
    """Add an attribute that holds content, if content is asked for."""
    content = captured_content()
    if content is not None and current.is_recorded:
        current.set({key: content.shown(value)})


def activate(tracing: Tracing) -> None:
    """Send the spans from now on there."""
    _active.append(tracing)


def deactivate(tracing: Tracing) -> None:
    """Send no more spans there; may be called twice."""
    if tracing in _active:
        _active.remove(tracing)


def _given(attributes: Attributes) -> dict[str, Any]:
    return {key: _cleaned(value) for key, value in attributes.items() if value is not None}


def _cleaned(value: Attribute) -> Attribute:
    if isinstance(value, str):
        return _clean(value)
    return value if isinstance(value, int | float | None) else [_clean(one) for one in value]


def _clean(text: str) -> str:
    return _active[-1].clean(text) if _active else text


def _kind(kind: Kind) -> Any:
    return _api().SpanKind.CLIENT if kind == "client" else _api().SpanKind.INTERNAL


def _api() -> Any:
    """The OpenTelemetry API, which takes a while to load and is not needed by most runs."""
    import opentelemetry.trace  # noqa: PLC0415 - see above

    return opentelemetry.trace
