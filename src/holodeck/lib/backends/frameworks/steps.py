"""Reads the steps of a turn where frameworks make no spans.

LangChain tells of them in its callbacks, the OpenAI Agents SDK in traces of its own.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from holodeck.lib.backends.frameworks.turn_trace import (
    OpenSteps,
    Operation,
    TraceStep,
    TurnTrace,
    current_turn,
    note_untraced_run,
    open_turns,
)

LANGCHAIN = "LangChain"
OPENAI_AGENTS = "OpenAI Agents SDK"
OPENAI_OPERATIONS: Mapping[str, Operation] = {
    "generation": "request",
    "response": "request",
    "function": "tool",
    "agent": "agent",
}
"""By the type of a span's data."""


def openai_agents(stack: ExitStack) -> bool:
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
    listener = _trace_listener()
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
            note_untraced_run(OPENAI_AGENTS)
        return trace


def current_processors() -> tuple[Any, ...]:
    """Return the trace processors of the SDK, which is set up for it."""
    from agents.tracing import get_trace_provider

    processors: Any = getattr(get_trace_provider(), "_multi_processor", None)
    return tuple(getattr(processors, "_processors", ()))


@cache
def _trace_listener() -> Any:
    from agents.tracing import TracingProcessor

    steps = OpenSteps()

    class Listener(TracingProcessor):  # type: ignore[misc]
        def on_trace_start(self, trace: Any) -> None:
            """Do nothing: only spans are steps."""

        def on_trace_end(self, trace: Any) -> None:
            """Do nothing: only spans are steps."""

        def on_span_start(self, span: Any) -> None:
            data = span.span_data
            operation = OPENAI_OPERATIONS.get(data.type, "other")
            step = TraceStep(OPENAI_AGENTS, operation, str(getattr(data, "name", "")))
            steps.begin(span.span_id, span.parent_id, step)

        def on_span_end(self, span: Any) -> None:
            step = steps.end(span.span_id)
            step.failed = span.error is not None
            if step.operation == "request":
                _read_model_span(step, span.span_data)

        def shutdown(self) -> None:
            """Do nothing; the SDK calls it."""

        def force_flush(self) -> None:
            """Do nothing; the SDK calls it."""

    return Listener()


def _read_model_span(step: TraceStep, data: Any) -> None:
    """Set what the data of a span tells about a request."""
    response = getattr(data, "response", None)
    usage = getattr(data, "usage", None) or {}
    step.model = getattr(data if response is None else response, "model", None)
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
        usage = {} if response.usage is None else vars(response.usage)
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


_handler: ContextVar[Any] = ContextVar("holodeck_langchain_handler", default=None)


def langchain(_: ExitStack) -> bool:
    """Let LangChain add the handler of the context to the callbacks of every run."""
    _register_handler()
    return True


@cache
def _register_handler() -> None:
    from langchain_core.tracers.context import register_configure_hook

    hook: Any = _HandlerOfContext()
    register_configure_hook(hook, inheritable=True)


class _HandlerOfContext:
    """What LangChain asks for the handler of a run, as it asks a context variable."""

    def get(self) -> Any:
        """Return the handler of the turn; one that notes strays in a thread without its context."""
        handler = _handler.get()
        is_stray = handler is None and open_turns and current_turn.get() not in open_turns
        return _new_handler() if is_stray else handler


@contextmanager
def langchain_handler(trace: TurnTrace) -> Iterator[None]:
    """Note the steps of the block; LangChain's own adapter has a handler that sees them all."""
    if "langchain_core" not in trace.packages or trace.framework == LANGCHAIN:
        yield
        return
    token = _handler.set(_new_handler())
    try:
        yield
    finally:
        _handler.reset(token)


def _new_handler() -> Any:
    from langchain_core.callbacks import BaseCallbackHandler

    steps = OpenSteps()

    class Handler(BaseCallbackHandler):  # type: ignore[misc]
        run_inline = True

        def _begin(self, event: Mapping[str, Any], step: TraceStep) -> None:
            steps.begin(event["run_id"], event.get("parent_run_id"), step)

        def on_chain_start(self, *_: Any, **event: Any) -> None:
            if event.get("parent_run_id") is None:  # the agent, whose models have it as a parent
                self._begin(event, TraceStep(LANGCHAIN, "other"))

        def on_chain_end(self, *_: Any, **event: Any) -> None:
            steps.end(event["run_id"])

        on_chain_error = on_chain_end

        def on_chat_model_start(self, *_: Any, **event: Any) -> None:
            self._begin(event, TraceStep(LANGCHAIN, "request"))

        on_llm_start = on_chat_model_start

        def on_llm_end(self, response: Any, **event: Any) -> None:
            _read_response(steps.end(event["run_id"]), response)

        def on_llm_error(self, error: BaseException, **event: Any) -> None:
            step = steps.end(event["run_id"])
            step.failed, step.result = True, f"{type(error).__name__}: {error}"

        on_tool_error = on_llm_error

        def on_tool_start(self, serialized: Any, *_: Any, **event: Any) -> None:
            name = (serialized or {}).get("name") or event.get("name") or ""
            call_id = event.get("tool_call_id")
            self._begin(event, TraceStep(LANGCHAIN, "tool", name, call_id=call_id))

        def on_tool_end(self, output: Any, **event: Any) -> None:
            steps.end(event["run_id"]).result = str(getattr(output, "content", output))

    return Handler()


def _read_response(step: TraceStep, response: Any) -> None:
    """Set the tool calls and the tokens of a model's answer."""
    generations = [choices[0] for choices in response.generations if choices]
    messages = [getattr(generation, "message", None) for generation in generations]
    calls = [
        call
        for message in messages
        if message is not None
        for call in [*message.tool_calls, *message.invalid_tool_calls]
    ]
    step.calls = [
        {"name": call["name"] or "", "arguments": call["args"], "call_id": call["id"]}
        for call in calls
    ]
    models = {
        (getattr(message, "response_metadata", None) or {}).get("model_name")
        for message in messages
    }
    step.model = models.pop() if len(models) == 1 else None
    usages = [getattr(message, "usage_metadata", None) or {} for message in messages]
    if usages and all(usages):
        step.usage = (
            sum(usage["input_tokens"] for usage in usages),
            sum(usage["output_tokens"] for usage in usages),
        )
