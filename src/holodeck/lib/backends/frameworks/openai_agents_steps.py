"""Reads the steps of a turn from the traces of the OpenAI Agents SDK."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from typing import Any

from holodeck.lib.backends.frameworks.turn_trace import (
    Operation,
    TraceStep,
    begin_step,
    note_untraced_run,
)

FRAMEWORK = "OpenAI Agents SDK"
OPERATIONS: Mapping[str, Operation] = {
    "generation": "request",
    "response": "request",
    "function": "tool",
    "agent": "agent",
}
"""By the type of a span's data."""


def listen(stack: ExitStack) -> bool:
    """Hear of the traces; the SDK's own processor, which uploads them, is put aside meanwhile.

    Processors that the user set get them as before.
    """
    try:
        from agents.tracing import (
            add_trace_processor,
            get_trace_provider,
            set_trace_processors,
            set_trace_provider,
        )
        from agents.tracing.processors import default_processor
    except ImportError:  # a package of the user's that is called `agents`, too
        return True
    listener = _listener()
    processors = current_processors()
    others = [other for other in processors if other not in (default_processor(), listener)]
    if not others:
        set_trace_processors([listener])
        stack.callback(set_trace_processors, [default_processor()])
    elif listener not in processors:
        add_trace_processor(listener)
    provider: Any = get_trace_provider()
    set_trace_provider(_NotingProvider(provider))
    stack.callback(set_trace_provider, provider)
    return True


class _NotingProvider:
    """The trace provider of the SDK, noting the runs whose tracing is off: no processor hears."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def create_trace(self, *args: Any, **options: Any) -> Any:
        from agents.tracing.traces import NoOpTrace

        trace = self._provider.create_trace(*args, **options)
        if isinstance(trace, NoOpTrace):
            note_untraced_run(FRAMEWORK)
        return trace


def current_processors() -> tuple[Any, ...]:
    """Return the trace processors of the SDK, which is set up for it."""
    from agents.tracing import get_trace_provider

    processors: Any = getattr(get_trace_provider(), "_multi_processor", None)
    return tuple(getattr(processors, "_processors", ()))


@cache
def _listener() -> Any:
    from agents.tracing import TracingProcessor

    class Listener(TracingProcessor):  # type: ignore[misc]
        def __init__(self) -> None:
            self._steps: dict[str, TraceStep] = {}

        def on_trace_start(self, trace: Any) -> None:
            """Do nothing: only spans are steps."""

        def on_trace_end(self, trace: Any) -> None:
            """Do nothing: only spans are steps."""

        def on_span_start(self, span: Any) -> None:
            data = span.span_data
            operation = OPERATIONS.get(data.type, "other")
            step = TraceStep(FRAMEWORK, operation, str(getattr(data, "name", "")))
            if begin_step(span.span_id, span.parent_id, step):
                self._steps[span.span_id] = step

        def on_span_end(self, span: Any) -> None:
            step = self._steps.pop(span.span_id, None)
            if step is not None:
                step.is_open = False
                _read_end(step, span)

        def shutdown(self) -> None:
            """Do nothing; the SDK calls it."""

        def force_flush(self) -> None:
            """Do nothing; the SDK calls it."""

    return Listener()


def _read_end(step: TraceStep, span: Any) -> None:
    step.failed = span.error is not None
    if step.operation == "request":
        _read_request(step, span.span_data)


def _read_request(step: TraceStep, data: Any) -> None:
    """Set what the data of a span tells about a request."""
    response = getattr(data, "response", None)
    usage = getattr(data, "usage", None) or {}
    if response is not None:
        items = [item for item in response.output if item.type.endswith("_call")]
        step.calls = [
            {
                "name": getattr(item, "name", None) or item.type.removesuffix("_call"),
                "arguments": getattr(item, "arguments", None),
                "call_id": getattr(item, "call_id", None) or item.id,
            }
            for item in items
        ]
        spent = response.usage
        usage = {} if spent is None else {"input_tokens": spent.input_tokens}
        usage |= {} if spent is None else {"output_tokens": spent.output_tokens}
    elif getattr(data, "output", None) is not None:
        step.calls = [
            {
                "name": call["function"]["name"],
                "arguments": call["function"]["arguments"],
                "call_id": call["id"],
            }
            for message in data.output
            for call in message.get("tool_calls") or ()
        ]
    prompt, completion = usage.get("input_tokens"), usage.get("output_tokens")
    step.usage = (prompt, completion) if prompt else (None, None)  # the SDK has 0 for unknown
