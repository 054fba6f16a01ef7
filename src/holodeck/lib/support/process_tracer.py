"""The tracer provider of this process: the user's, or ours where it has none.

The process's own provider, whenever it is set, has precedence: the tracers that ours has given to
user code then make their spans with it. Without a user of ours, they make none.

Importing this module imports the OpenTelemetry API and nothing else: the worker of a process
backend loads it in environments without holodeck.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Mapping
from enum import Enum
from random import getrandbits
from typing import Any, Protocol

import opentelemetry.trace as api
from opentelemetry.context import Context
from opentelemetry.trace import (
    NoOpTracer,
    Span,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TracerProvider,
)
from opentelemetry.util._decorator import _agnosticcontextmanager


class Listener(Protocol):
    """Gets every span; a span processor of the SDK without its other methods."""

    def on_start(self, span: Any, parent_context: object = None) -> None:
        """Take a span that begins in the current context."""

    def on_end(self, span: Any) -> None:
        """Take a span that has ended."""


def process_provider() -> Any:
    """Return the tracer provider of this process; None if there is none but ours."""
    provider = api.get_tracer_provider()
    return None if isinstance(provider, api.ProxyTracerProvider | _OurProvider) else provider


def listen(listener: Listener) -> bool:
    """Tell the listener of the spans of this process until `leave`; return whether of all.

    A provider of the user gets it as a span processor, once, and keeps it.
    """
    provider = process_provider()
    if provider is None:
        _ours.listener = listener
        _install()
        return True
    if not hasattr(provider, "add_span_processor"):
        return False
    add_once(provider, listener)
    return records_all(provider) and not isinstance(provider.get_tracer(__name__), NoOpTracer)


def add_once(target: Any, processor: object) -> None:
    """Add a span processor to a provider of the SDK, which keeps it, unless it has it."""
    _added[:] = [(ref, other) for ref, other in _added if ref() is not None]
    if not any(ref() is target and other is processor for ref, other in _added):
        target.add_span_processor(processor)
        _added.append((weakref.ref(target), processor))


def records_all(maker: Any) -> bool:
    """Whether the sampler of a provider or tracer of the SDK keeps all spans; so if it has none."""
    sampler = getattr(maker, "sampler", None)
    return sampler is None or bool(_KEEPS_ALL.match(sampler.get_description()))


def leave() -> None:
    """End `listen`; OpenTelemetry cannot remove the listener from a provider of the user."""
    _ours.listener = None
    _uninstall()


def sdk_provider() -> Any:
    """Make ours the provider of the process, which must have none, and return the SDK's.

    Its processors get complete spans, until `close_sdk_provider`.
    """
    if _ours.sdk is None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        _ours.sdk = SdkTracerProvider(ALWAYS_ON, Resource.get_empty(), shutdown_on_exit=False)
        _ours.sdk.add_span_processor(_Relay())
    _ours.uses_sdk = True
    _install()
    return _ours.sdk


def close_sdk_provider() -> None:
    """End `sdk_provider`."""
    _ours.uses_sdk = False
    _uninstall()


def _install() -> None:
    _set_provider(_ours)
    if api.get_tracer_provider() is not _ours:  # a version that keeps it elsewhere
        api.set_tracer_provider(_ours)


def _uninstall() -> None:
    is_used = _ours.uses_sdk or _ours.listener is not None
    if api.get_tracer_provider() is _ours and not is_used:
        _set_provider(None)


def _set_provider(provider: TracerProvider | None) -> None:
    # The public function works once in a process, and the user's call of it would have no effect.
    api._TRACER_PROVIDER = provider  # noqa: SLF001


class _OurProvider(TracerProvider):
    """Makes spans of the SDK while any of its processors needs them, else our own small ones."""

    def __init__(self) -> None:
        self.sdk: Any = None
        self.uses_sdk = False
        self.listener: Listener | None = None

    def get_tracer(self, *args: Any, **options: Any) -> Tracer:
        return _ForwardingTracer(args, options)


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
        if provider is _ours:
            provider = _ours.sdk if _ours.uses_sdk else _ours.listener
        known, tracer = self._known
        if known is not provider:
            tracer = self._new_tracer(provider)
            self._known = (provider, tracer)
        return tracer

    def _new_tracer(self, provider: Any) -> Tracer:
        args, options = self._arguments
        if provider is None or isinstance(provider, api.ProxyTracerProvider):
            return NoOpTracer()
        if _ours.listener is not None and provider is _ours.listener:
            name = args[0] if args else options.get("instrumenting_module_name", "")
            return _SmallTracer(name, _ours.listener)
        tracer: Tracer = provider.get_tracer(*args, **options)
        return tracer


class _Relay:
    """Passes spans of our SDK provider on to the listener of the moment, if any."""

    def on_start(self, span: Any, parent_context: object = None) -> None:
        if _ours.listener is not None:
            _ours.listener.on_start(span, parent_context)

    def on_end(self, span: Any) -> None:
        if _ours.listener is not None:
            _ours.listener.on_end(span)

    def _on_ending(self, span: Any) -> None:
        """Do nothing; the SDK calls it."""

    def shutdown(self) -> None:
        """Do nothing; the SDK calls it."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 - the SDK's name
        return True


class _Scope:
    """The instrumentation scope of a span, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name


class _SmallTracer(Tracer):
    def __init__(self, name: str, listener: Listener) -> None:
        self._scope = _Scope(name)
        self._listener = listener

    def start_span(self, name: str, context: Context | None = None, *_: Any, **options: Any) -> Any:
        """Return a span that has begun, inside of that of the context."""
        parent = api.get_current_span(context).get_span_context()
        span = _SmallSpan(name, self._scope, parent if parent.is_valid else None, self._listener)
        span.set_attributes(options.get("attributes") or {})
        self._listener.on_start(span, context)
        return span

    @_agnosticcontextmanager  # the API's own: it also decorates functions, async ones too
    def start_as_current_span(self, name: str, *args: Any, **options: Any) -> Any:
        """Yield a span that is open, and current, inside of the block."""
        ends = options.pop("end_on_exit", True)
        for key in ("record_exception", "set_status_on_exception"):
            options.pop(key, None)
        span = self.start_span(name, *args, **options)
        with api.use_span(span, end_on_exit=ends):
            yield span


class _SmallSpan(Span):
    """A span with what listeners read: its name, place, attributes and status."""

    def __init__(
        self, name: str, scope: _Scope, parent: SpanContext | None, listener: Listener
    ) -> None:
        self.name = name
        self.instrumentation_scope = scope
        self.parent = parent
        self.attributes: dict[str, Any] = {}
        self.status = Status(StatusCode.UNSET)
        self._listener: Listener | None = listener
        trace_id = getrandbits(128) if parent is None else parent.trace_id
        self._context = SpanContext(
            trace_id, getrandbits(64), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)
        )

    def end(self, end_time: int | None = None) -> None:  # noqa: ARG002 - the API's name
        """End the span; a second call does nothing."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.on_end(self)

    def get_span_context(self) -> SpanContext:
        return self._context

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        for key, value in attributes.items():
            self.set_attribute(key, value)

    def set_attribute(self, key: str, value: Any) -> None:
        # A member of an enumeration equals its text, but has another hash.
        self.attributes[key.value if isinstance(key, Enum) else key] = value

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        """Do nothing: nobody reads events."""

    def update_name(self, name: str) -> None:
        self.name = name

    def is_recording(self) -> bool:
        return self._listener is not None

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.status = status if isinstance(status, Status) else Status(status, description)

    def record_exception(self, *_: Any, **__: Any) -> None:
        """Do nothing: the status says that the work failed."""


_KEEPS_ALL = re.compile(r"(ParentBased\{root:)?(AlwaysOnSampler|TraceIdRatioBased\{1(\.0)?\})")
"""What the descriptions of the SDK's samplers begin with that leave no span out."""
_ours = _OurProvider()
_added: list[tuple[weakref.ref[Any], object]] = []
"""What has got which span processor."""
