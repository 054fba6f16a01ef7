"""Listens to the tracing of the agent frameworks of this process while turns are under way.

Spans of OpenTelemetry tell of Semantic Kernel, Agent Framework, PydanticAI and Google ADK, traces
of their own of the OpenAI Agents SDK, and callbacks of LangChain. A context variable says which
turn a step belongs to. The user's own tracing gets everything that it got before.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from threading import RLock
from typing import Any

from holodeck.lib.backends.frameworks import steps
from holodeck.lib.backends.frameworks.turn_trace import (
    OpenSteps,
    Operation,
    TraceStep,
    TurnTrace,
    in_turn,
    note_request,
    open_turns,
)

SCOPES: Mapping[str, str] = {
    "semantic_kernel": "Semantic Kernel",
    "agent_framework": "Microsoft Agent Framework",
    "pydantic-ai": "PydanticAI",
    "gcp": "Google ADK",
}
"""Frameworks by the first part of the instrumentation scope of their spans."""
OPERATIONS: Mapping[str, Operation] = {
    "chat": "request",
    "text_completion": "request",
    "text_completions": "request",
    "call_llm": "request",
    "generate_content": "request",
    "execute_tool": "tool",
    "invoke_agent": "agent",
}
"""By the first word of a span's name; frameworks set the attribute that says it only later."""

NO_CALL_ID = frozenset({None, "", "unknown", "<not specified>"})
"""What frameworks write where they do not know the call of a tool."""


class SpanListener:
    """Notes the spans of all frameworks; a span processor."""

    def __init__(self) -> None:
        self._steps = OpenSteps()

    def on_start(self, span: Any, parent_context: object = None) -> None:  # noqa: ARG002 - the SDK's name
        """Note a span that begins in the context of a turn."""
        scope = getattr(span.instrumentation_scope, "name", "")
        framework = SCOPES.get(scope.partition(".")[0], "")
        word, _, name = span.name.partition(" ")
        # Google ADK also makes a span for the results of several tools together: `(merged)`.
        is_known = bool(framework) and not name.startswith("(")
        step = TraceStep(framework, OPERATIONS.get(word, "other") if is_known else "other", name)
        parent = None if span.parent is None else span.parent.span_id
        self._steps.begin(span.get_span_context().span_id, parent, step)

    def on_end(self, span: Any) -> None:
        """Note what a span tells at its end."""
        step = self._steps.end(span.get_span_context().span_id)
        if step.operation != "other":
            step.failed = span.status.status_code.name == "ERROR"
            read_attributes(step, span.attributes or {})

    def _on_ending(self, span: Any) -> None:
        """Do nothing; the SDK calls it."""

    def shutdown(self) -> None:
        """Do nothing; the SDK calls it."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 - the SDK's name
        """Return that there is nothing to send."""
        return True


def read_attributes(step: TraceStep, attributes: Mapping[str, Any]) -> None:
    """Set what the attributes of a span tell about its step."""
    if step.operation == "tool":
        step.name = str(attributes.get("gen_ai.tool.name", step.name))
        call_id = attributes.get("gen_ai.tool.call.id")
        step.call_id = None if call_id in NO_CALL_ID else str(call_id)
        step.arguments = attributes.get("gen_ai.tool.call.arguments")
        step.result = attributes.get("gen_ai.tool.call.result")
    elif step.operation == "agent":
        step.name = str(attributes.get("gen_ai.agent.name", step.name))
    else:
        tokens = (attributes.get(f"gen_ai.usage.{side}_tokens") for side in ("input", "output"))
        prompt, completion = (count if isinstance(count, int) else None for count in tokens)
        model = attributes.get("gen_ai.response.model") or attributes.get("gen_ai.request.model")
        step.model = None if model is None else str(model)
        known = prompt or completion  # PydanticAI has 0 for unknown
        step.usage = (prompt, completion) if known else (None, None)
        shapes = _json(attributes.get("model_request_parameters")) or {}  # of PydanticAI
        step.left_out = [tool["name"] for tool in shapes.get("output_tools") or ()]
        step.calls = _calls(attributes, step.left_out)


def _calls(attributes: Mapping[str, Any], left_out: list[str]) -> list[dict[str, Any]] | None:
    """Return the tool calls that a model answered with; None if the span does not tell."""
    messages = _json(attributes.get("gen_ai.output.messages"))
    if isinstance(messages, list):
        parts = [part for message in messages for part in message.get("parts") or ()]
        return [
            {"name": part["name"], "arguments": part.get("arguments"), "call_id": part.get("id")}
            for part in parts
            if part.get("type") == "tool_call" and part["name"] not in left_out
        ]
    reason = attributes.get("gen_ai.response.finish_reasons")
    reason = str(attributes.get("gen_ai.response.finish_reason") if reason is None else reason)
    asks_for_tools = reason == "None" or "tool" in reason.lower() or "function" in reason.lower()
    return None if asks_for_tools else []


def _json(text: Any) -> Any:
    """Return what a text of JSON holds; None for anything else."""
    with suppress(ValueError, TypeError):
        return json.loads(text)
    return None


SWITCHES: Mapping[str, Callable[[ExitStack], bool]]
"""By package: turns the tracing of a framework on, and the stack turns it off again.

Returns whether all its runs are heard, but for those that say themselves that they are not.
"""

_lock = RLock()
_switched_on: set[str] = set()
_unheard: set[str] = set()
"""Those of them whose runs are not all heard."""
_switched = ExitStack()
"""Puts the tracing of the frameworks back as it was, once no turn is under way."""


@contextmanager
def watch_turn(framework: str) -> Iterator[TurnTrace]:
    """Yield the trace of the turn that an agent of the framework takes in the block."""
    trace = TurnTrace(framework, lambda: frozenset(SWITCHES.keys() & sys.modules.keys()))
    with _lock:
        open_turns.append(trace)
        for package in trace.packages - _switched_on:
            if not SWITCHES[package](_switched):
                _unheard.add(package)
            _switched_on.add(package)
        trace.unheard = trace.packages & _unheard
    try:
        with in_turn(trace), steps.langchain_handler(trace):
            yield trace
    finally:
        with _lock:
            open_turns.remove(trace)
            if not open_turns:
                _switched_on.clear()
                _unheard.clear()
                _switched.close()


def _semantic_kernel(stack: ExitStack) -> bool:
    """Let Semantic Kernel make spans of requests and agents; of functions it always does."""
    from semantic_kernel.utils.telemetry.agent_diagnostics import decorators as agents
    from semantic_kernel.utils.telemetry.model_diagnostics import decorators as models

    is_heard = _listen(stack)
    for settings in (agents.MODEL_DIAGNOSTICS_SETTINGS, models.MODEL_DIAGNOSTICS_SETTINGS):
        stack.callback(
            setattr, settings, "enable_otel_diagnostics", settings.enable_otel_diagnostics
        )
        settings.enable_otel_diagnostics = True
    return is_heard


def _agent_framework(stack: ExitStack) -> bool:
    from agent_framework.observability import OBSERVABILITY_SETTINGS

    return _listen(stack) and bool(OBSERVABILITY_SETTINGS.ENABLED)


def _pydantic_ai(stack: ExitStack) -> bool:
    """Let agents make spans: those that the user chose, or else for the listener alone."""
    from opentelemetry.metrics import NoOpMeterProvider
    from pydantic_ai import Agent, models
    from pydantic_ai.models.instrumented import InstrumentationSettings

    from holodeck.lib.support import process_tracer

    is_heard = _listen(stack)
    if models.ALLOW_MODEL_REQUESTS:
        stack.enter_context(models.override_allow_model_requests(_RequestSwitch()))
    before = Agent._instrument_default  # noqa: SLF001 - `instrument_all` has no getter
    if before:
        return listen_to_tracer(getattr(before, "tracer", None)) or is_heard
    # Another's exporter gets no content that the user did not ask for.
    settings = InstrumentationSettings(
        meter_provider=NoOpMeterProvider(),
        include_content=process_tracer.process_provider() is None,
        include_binary_content=False,
    )
    Agent.instrument_all(settings)
    stack.callback(Agent.instrument_all, before)
    return is_heard


class _RequestSwitch:
    """Allows the requests of PydanticAI, and notes those of agents whose tracing is off.

    Every model asks it before a request.
    """

    OTHERS = ("pydantic_ai.embeddings", "pydantic_ai.images")
    """What asks, too, but runs no agent."""

    def __bool__(self) -> bool:
        asking = sys._getframe(2).f_globals.get("__name__", "")  # noqa: SLF001 - documented
        if not asking.startswith(self.OTHERS):
            note_request("PydanticAI")
        return True


def _listen(stack: ExitStack) -> bool:
    """Hear of the spans of this process; return whether that is of all."""
    from holodeck.lib.support import process_tracer

    is_heard = process_tracer.listen(_listener)
    stack.callback(process_tracer.leave)
    return is_heard


def listen_to_tracer(tracer: Any) -> bool:
    """Hear of the spans of a tracer whose provider is not that of the process, if it is heard."""
    from holodeck.lib.support.process_tracer import add_once, records_all

    processor = getattr(tracer, "span_processor", None)
    if processor is None:
        return False
    add_once(processor, _listener)
    return records_all(tracer)


_listener = SpanListener()

SWITCHES = {
    "semantic_kernel": _semantic_kernel,
    "agent_framework": _agent_framework,
    "pydantic_ai": _pydantic_ai,
    "google.adk": _listen,
    "agents.tracing": steps.openai_agents,
    "langchain_core": steps.langchain,
}
