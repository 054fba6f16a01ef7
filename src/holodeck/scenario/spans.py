"""OpenTelemetry spans of scenarios: which are made, which are collected, and where they are sent.

A scenario collects the spans of this process that belong to it. It uses the tracer provider that
the process has. If there is none and something has imported OpenTelemetry, or criteria speak of
spans, it uses one of its own while it runs. `setup_scenario_tracing`, or `configure(observability=
{…})` with the same settings, adds exporters, processors and instrumentors of yours.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import signature
from types import ModuleType
from typing import TYPE_CHECKING, Any

import holodeck
from holodeck.lib.conversation.participants import HasCriteria
from holodeck.lib.conversation.types import Participant, ScenarioResult, ScenarioUsageError
from holodeck.lib.observability import names
from holodeck.lib.spans.evidence import mentions_spans
from holodeck.lib.spans.store import ROLE, THREAD_ID, TURN, SpanStore, process_spans, scope_of
from holodeck.lib.support.text import describe, did_you_mean_or_list

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

    from holodeck.lib.conversation.script_run import ScriptRun

__all__ = ["SpanFilter", "scenario_only", "setup_scenario_tracing", "with_custom_scopes"]

logger = logging.getLogger(__name__)

SpanFilter = Callable[["ReadableSpan"], bool]
"""Says whether a span is exported."""

_SCOPES = frozenset({names.SCENARIO_TRACER, "langwatch"})
"""Tracers of scenarios: ours, and that of the original's SDK, which user code may use."""
_NOT_SAMPLED = "the sampler of the process's tracer provider does not record this conversation"

_is_set_up = False


def scenario_only(span: ReadableSpan) -> bool:
    """Whether a span comes from a scenario itself; a filter for `setup_scenario_tracing`."""
    return scope_of(span) in _SCOPES


def with_custom_scopes(*scopes: str) -> SpanFilter:
    """Return a filter for the spans of scenarios and of these tracers."""
    allowed = _SCOPES.union(scopes)
    return lambda span: scope_of(span) in allowed


def setup_scenario_tracing(
    *,
    span_filter: SpanFilter | None = None,
    span_processors: Sequence[SpanProcessor] | None = None,
    trace_exporter: SpanExporter | None = None,
    instrumentors: Sequence[Any] | None = None,
) -> None:
    """Send the spans of this process to exporters and processors, besides collecting them.

    They are added to the process's tracer provider. If there is none, a new one is set. Only the
    first call in a process has an effect.

    Args:
        span_filter: Says which spans the exporter gets, such as `scenario_only`.
        span_processors: Processors, which get all spans.
        trace_exporter: An exporter, which gets each span as it ends.
        instrumentors: OpenTelemetry instrumentors, which are activated.
    """
    global _is_set_up  # noqa: PLW0603 - as there is one tracer provider in a process
    if _is_set_up:
        if span_filter or span_processors or trace_exporter or instrumentors:
            logger.warning("scenario tracing is set up already; further settings have no effect")
        return
    provider = _provider_of_process()
    for processor in span_processors or ():
        provider.add_span_processor(processor)
    if trace_exporter is not None:
        provider.add_span_processor(_exporting(trace_exporter, span_filter))
    for instrumentor in instrumentors or ():
        instrumentor.instrument(tracer_provider=provider)
    _is_set_up = True


def set_up_from_settings(settings: Mapping[str, Any]) -> None:
    """Do what `configure(observability={…})` says. Raises ScenarioUsageError."""
    known = list(signature(setup_scenario_tracing).parameters)
    unknown = next((name for name in settings if name not in known), None)
    if unknown is not None:
        problem = f"observability has no setting {unknown!r}{did_you_mean_or_list(unknown, known)}"
        raise ScenarioUsageError("scenario.configure", problem)
    if not _is_set_up:
        setup_scenario_tracing(**settings)


def _provider_of_process() -> Any:
    """Return the tracer provider of this process, new if there is none."""
    import opentelemetry.trace  # noqa: PLC0415 - only for those who use it
    from opentelemetry.sdk.trace import TracerProvider

    from holodeck.lib.support.process_tracer import process_provider  # noqa: PLC0415

    provider = process_provider()
    if provider is None:
        provider = TracerProvider()
        opentelemetry.trace.set_tracer_provider(provider)
    if not hasattr(provider, "add_span_processor"):
        raise ScenarioUsageError(
            "setup_scenario_tracing",
            f"the tracer provider of this process, a {type(provider).__qualname__}, takes no"
            " exporters; set one of opentelemetry.sdk.trace",
        )
    return provider


def _exporting(exporter: SpanExporter, span_filter: SpanFilter | None) -> SpanProcessor:
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    class Exporting(SimpleSpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            if span_filter is None or span_filter(span):
                super().on_end(span)

    return Exporting(exporter)


class ScenarioTracing:
    """The spans of a run: those around it, its turns and its calls, and those that it collects.

    Every turn is a trace of its own, so that conversations in one process stay apart.
    """

    def __init__(self, run: ScriptRun) -> None:
        self.store = SpanStore(run.thread_id)
        self._run = run
        self._scenario: Span | None = None
        self._turn: tuple[int, Span] | None = None
        self._has_begun = False

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Collect spans inside the block."""
        with process_spans.open(self.store):
            self._watch()
            try:
                yield
            except BaseException as error:
                self._close(describe(error))
                raise
            self._close()

    def finish(self, result: ScenarioResult) -> None:
        """Write the result into the span of the scenario."""
        if self._scenario is not None:
            self._scenario.set_attribute("scenario.status", result.status)

    def in_turn(self) -> AbstractContextManager[object]:
        """Return a context whose spans belong to the current turn."""
        self._watch()
        if not self.store.is_collecting:
            return nullcontext()
        span = self._turn_span()  # which stays open
        inside: AbstractContextManager[object] = _otel().use_span(
            span, record_exception=False, set_status_on_exception=False
        )
        return inside

    @contextmanager
    def around(self, participant: Participant) -> Iterator[None]:
        """Open a span around a call of a participant."""
        with self.in_turn():
            self._has_begun = True
            if not self.store.is_collecting:
                yield
                return
            attributes = {
                THREAD_ID: self._run.thread_id,
                ROLE: participant.role.value,
                TURN: self._run.current_turn,
            }
            with _tracer().start_as_current_span(
                f"{type(participant).__name__}.call",
                attributes=attributes,
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    yield
                except BaseException as error:
                    _fail(span, describe(error))
                    raise

    def _watch(self) -> None:
        judges = [agent for agent in self._run.agents if isinstance(agent, HasCriteria)]
        criteria = [text for judge in judges for text in judge.criteria or ()]
        if "opentelemetry.trace" not in sys.modules and not any(map(mentions_spans, criteria)):
            return
        was_collecting = self.store.is_collecting
        process_spans.watch(self.store)  # again, as user code may have set another tracer provider
        if self.store.is_collecting and self._has_begun and not was_collecting:
            self.store.add_gap("what the agent did before anything had imported OpenTelemetry")

    def _turn_span(self) -> Span:
        number = self._run.current_turn
        if self._turn is not None and self._turn[0] == number:
            return self._turn[1]
        if self._turn is not None:
            self._turn[1].end()
        if self._scenario is None:
            self._scenario = self._start_trace("Scenario", {}, _otel().get_current_span())
        span = self._start_trace("Scenario Turn", {TURN: number}, self._scenario)
        if not span.is_recording():
            self.store.add_gap(_NOT_SAMPLED)
        self._turn = (number, span)
        return span

    def _start_trace(self, name: str, attributes: Mapping[str, int], linked: Span) -> Span:
        """Start the first span of a new trace, linked with another."""
        run, api, context = self._run, _otel(), linked.get_span_context()
        known: dict[str, str | int] = {
            THREAD_ID: run.thread_id,
            "langwatch.origin": "simulation",
            "scenario.name": run.name,
            "scenario.run_id": run.usage.scenario_run_id,
            "scenario.set_id": run.scenario_set_id,
            "scenario.batch_id": run.batch_run_id,
            "scenario.sdk.name": "holodeck",
            "scenario.sdk.version": holodeck.__version__,
        }
        return _tracer().start_span(
            name,
            context=api.set_span_in_context(api.INVALID_SPAN),
            attributes={**known, **attributes},
            links=[api.Link(context)] if context.is_valid else [],
        )

    def _close(self, error: str | None = None) -> None:
        for span in (self._turn[1] if self._turn is not None else None, self._scenario):
            if span is not None:
                if error is not None:
                    _fail(span, error)
                span.end()


def _fail(span: Span, error: str) -> None:
    span.set_status(_otel().Status(_otel().StatusCode.ERROR, error))


def _tracer() -> Tracer:
    tracer: Tracer = _otel().get_tracer(names.SCENARIO_TRACER)
    return tracer


def _otel() -> ModuleType:
    # Imported here because most scenarios have no spans.
    import opentelemetry.trace  # noqa: PLC0415

    return opentelemetry.trace
