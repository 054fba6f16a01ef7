"""Reads the steps of a turn from LangChain's callbacks, where another framework takes the turn."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any

from holodeck.lib.backends.frameworks.turn_trace import (
    TraceStep,
    TurnTrace,
    begin_step,
    current_turn,
    open_turns,
)

FRAMEWORK = "LangChain"

_handler: ContextVar[Any] = ContextVar("holodeck_langchain_handler", default=None)


def listen(_: ExitStack) -> bool:
    """Let LangChain add the handler of the context to the callbacks of every run."""
    _register()
    return True


@cache
def _register() -> None:
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
def handled(trace: TurnTrace) -> Iterator[None]:
    """Note the steps of the block; LangChain's own adapter has a handler that sees them all."""
    if "langchain_core" not in trace.packages or trace.framework == FRAMEWORK:
        yield
        return
    token = _handler.set(_new_handler())
    try:
        yield
    finally:
        _handler.reset(token)


class _OpenSteps:
    """The steps that have begun, by their runs."""

    def __init__(self) -> None:
        self._steps: dict[Any, TraceStep] = {}

    def begin(self, step: TraceStep, event: Mapping[str, Any]) -> None:
        if begin_step(event["run_id"], event.get("parent_run_id"), step):
            self._steps[event["run_id"]] = step

    def end(
        self, event: Mapping[str, Any], read: Callable[[TraceStep], None] = lambda _: None
    ) -> None:
        step = self._steps.pop(event["run_id"], None)
        if step is not None:
            step.is_open = False
            read(step)


def _new_handler() -> Any:
    from langchain_core.callbacks import BaseCallbackHandler

    steps = _OpenSteps()

    class Handler(BaseCallbackHandler):  # type: ignore[misc]
        run_inline = True

        def on_chain_start(self, *_: Any, **event: Any) -> None:
            if event.get("parent_run_id") is None:  # the agent, whose models have it as a parent
                steps.begin(TraceStep(FRAMEWORK, "other"), event)

        def on_chain_end(self, *_: Any, **event: Any) -> None:
            steps.end(event)

        on_chain_error = on_chain_end

        def on_chat_model_start(self, *_: Any, **event: Any) -> None:
            steps.begin(TraceStep(FRAMEWORK, "request"), event)

        def on_llm_start(self, *_: Any, **event: Any) -> None:
            steps.begin(TraceStep(FRAMEWORK, "request"), event)

        def on_llm_end(self, response: Any, **event: Any) -> None:
            steps.end(event, partial(_read_response, response=response))

        def on_llm_error(self, error: BaseException, **event: Any) -> None:
            steps.end(event, partial(_read_failure, error=error))

        def on_tool_start(self, serialized: Any, *_: Any, **event: Any) -> None:
            name = (serialized or {}).get("name") or event.get("name") or ""
            call_id = event.get("tool_call_id")
            steps.begin(TraceStep(FRAMEWORK, "tool", name, call_id=call_id), event)

        def on_tool_end(self, output: Any, **event: Any) -> None:
            steps.end(event, partial(_read_output, output=output))

        on_tool_error = on_llm_error

    return Handler()


def _read_output(step: TraceStep, output: Any) -> None:
    step.result = str(getattr(output, "content", output))


def _read_failure(step: TraceStep, error: BaseException) -> None:
    step.failed, step.result = True, f"{type(error).__name__}: {error}"


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
    usages = [getattr(message, "usage_metadata", None) or {} for message in messages]
    if usages and all(usages):
        step.usage = (
            sum(usage["input_tokens"] for usage in usages),
            sum(usage["output_tokens"] for usage in usages),
        )
