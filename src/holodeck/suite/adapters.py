"""The agent under test, in whatever shape it comes, asked for one answer."""

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

from holodeck.errors import BackendError, BackendSessionError, BackendTimeoutError, ConfigError
from holodeck.lib.backends.base import AgentBackend, ExecutionResult
from holodeck.lib.backends.parsing import parse_result
from holodeck.lib.backends.user_agents import AgentFunction, find_agent_function
from holodeck.lib.exceptions import describe
from holodeck.lib.llm.limits import call_with_limit
from holodeck.lib.test_runner.tool_checks import pair_tool_calls
from holodeck.lib.threads import call_user_function
from holodeck.suite.results import AgentResult, TokenUsage, ToolCall

logger = logging.getLogger(__name__)

WHERE = "adapter"
Context = dict[str, Any]


@runtime_checkable
class AgentAdapter(Protocol):
    """The agent under test; `run` may also be a coroutine function."""

    def run(self, input: str, context: Context | None = None) -> AgentResult:  # noqa: A002
        """The agent's answer to one input."""
        ...


class Agent:
    """Asks an adapter, an AgentBackend or a plain function, within a time limit."""

    def __init__(self, adapter: object) -> None:
        if inspect.isclass(adapter):
            name = adapter.__name__
            raise ConfigError(WHERE, f"{name} is a class; give an agent made of it: {name}()")
        self._backend = adapter if isinstance(adapter, AgentBackend) else None
        self._entry = None if self._backend else _entry_of(adapter)

    def check_context(self, context: Context | None) -> None:
        """Raise ConfigError if there is a context that would not reach the agent."""
        if context is None:
            return
        if not isinstance(context, Mapping):
            raise ConfigError("context", f"found {type(context).__name__}; wanted a mapping")
        if self._entry is None or _takes_none(self._entry):
            raise ConfigError(
                "context",
                "the agent takes none; give it a parameter 'context', as in"
                " run(input, context=None)",
            )

    async def answer(self, message: str, context: Context | None, limit_s: float) -> AgentResult:
        """The answer. Raises BackendError."""
        return await call_with_limit(partial(self._answer, message, context), limit_s)

    async def close(self) -> None:
        """Let go of what a backend holds."""
        if self._backend is None:
            return
        try:
            await self._backend.teardown()
        except Exception as error:  # noqa: BLE001 - results must not be lost to a clean-up
            logger.warning("closing the agent failed: %s", describe(error))

    async def _answer(self, message: str, context: Context | None) -> AgentResult:
        if self._backend is not None:
            await self._backend.initialize()
            return _read(await self._backend.invoke_once(message))
        entry = cast(AgentFunction, self._entry)
        return _read(await call_user_function(_call(entry, message, context), entry.function))


def in_words(error: BackendError) -> str:
    """What kept the agent from answering, as `Type: message`."""
    if isinstance(error, BackendTimeoutError):
        return f"TimeoutError: {error}"
    if type(error) is BackendSessionError and error.__cause__ is not None:
        return str(error)  # what the agent raised, in these words already
    return f"{type(error).__name__}: {error}"


def _call(entry: AgentFunction, message: str, context: Context | None) -> Callable[[], Any]:
    if entry.case_context is not None:
        return partial(entry.function, message, **{entry.case_context: context})
    if entry.context == "left out":
        return partial(entry.function, message)
    if entry.context == "second":
        return partial(entry.function, message, context)
    return partial(entry.function, message, context=context)


def _takes_none(entry: AgentFunction) -> bool:
    return entry.context == "left out" and entry.case_context is None


def _entry_of(adapter: object) -> AgentFunction:
    """How it is asked; one that takes any keyword gets the context by name."""
    entry = find_agent_function(adapter, WHERE)
    kinds = {one.kind for one in inspect.signature(entry.function).parameters.values()}
    takes_all = _takes_none(entry) and inspect.Parameter.VAR_KEYWORD in kinds
    return replace(entry, context="by name") if takes_all else entry


def _read(value: object) -> AgentResult:
    if isinstance(value, AgentResult):
        return value.model_copy()  # an adapter may fill the same object again for the next answer
    return _converted(parse_result(value))


def _converted(answer: ExecutionResult) -> AgentResult:
    """An answer in the form of a backend's. Raises BackendSessionError if it is a failure."""
    if answer.is_error:
        raise BackendSessionError(answer.error_reason or "the agent failed and gave no reason")
    usage, known = answer.token_usage, {}
    if answer.tool_calls is not None:
        known["tool_calls"] = [
            ToolCall(name=call.name, arguments=call.args, result=call.result)
            for call in pair_tool_calls(answer.tool_calls, answer.tool_results)
        ]
    return AgentResult(
        output=answer.response,
        **known,
        token_usage=TokenUsage(
            prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens
        )
        if usage is not None and usage.total_tokens
        else None,
        raw_response=answer,
    )
