"""The agent under test, in any documented shape."""

import inspect
import logging
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

from holodeck.errors import BackendError, BackendSessionError, BackendTimeoutError, ConfigError
from holodeck.lib.backends.base import AgentBackend, AgentSession, ExecutionResult, Message
from holodeck.lib.backends.parsing import parse_result
from holodeck.lib.llm.limits import call_with_limit
from holodeck.lib.processes.threads import call_user_function
from holodeck.lib.support.signatures import AgentCall, UnusableAgent, find_call
from holodeck.lib.support.text import describe
from holodeck.lib.test_runner.observe import pair_tool_calls
from holodeck.suite.results import AgentResult, TokenUsage, ToolCall

logger = logging.getLogger(__name__)

WHERE = "adapter"
Context = dict[str, Any]


@runtime_checkable
class AgentAdapter(Protocol):
    """The agent under test; `run` may also be a coroutine function."""

    def run(self, input: str, context: Context | None = None) -> AgentResult:  # noqa: A002
        """Return the agent's answer to an input."""
        ...


class AdapterBackend:
    """Calls an adapter, an AgentBackend or a plain function, each time with a copy of the context.

    Raises ConfigError for a context that would not reach the agent.
    """

    def __init__(self, adapter: object, context: Context | None = None) -> None:
        if inspect.isclass(adapter):
            name = adapter.__name__
            raise ConfigError(WHERE, f"{name} is a class; give an agent made of it: {name}()")
        self._target = adapter if isinstance(adapter, AgentBackend) else _agent_function(adapter)
        self._check_context(context)
        self._shared = _uncopyable(context)
        # A copy, so that no attempt changes what the next one gets.
        self._context = deepcopy(context, dict(self._shared))
        self.answer = AgentResult(output="")
        """The latest; its output is empty if there is none."""
        self.failure: BackendError | None = None
        """Why there is no answer."""

    def _check_context(self, context: Context | None) -> None:
        if context is not None and not isinstance(context, Mapping):
            raise ConfigError("context", f"found {type(context).__name__}; expected a mapping")
        takes_any = isinstance(self._target, AgentCall) and not _takes_no_context(self._target)
        if context is not None and not takes_any:
            raise ConfigError(
                "context",
                "the agent takes none; give it a parameter 'context', as in"
                " run(input, context=None)",
            )

    async def initialize(self) -> None:
        """Do nothing: the first call opens a backend."""

    async def invoke_once(
        self,
        message: str,
        context: Sequence[Message] | None = None,  # noqa: ARG002 - scenarios have no history
    ) -> ExecutionResult:
        """Return the agent's answer within the limit of the test case. Raises BackendError."""
        self.answer, self.failure = AgentResult(output=""), None
        try:
            call = partial(self._answer, message, deepcopy(self._context, dict(self._shared)))
            self.answer = await call_with_limit(call, None)
        except BackendError as error:
            self.failure = error
            raise
        return ExecutionResult(response=self.answer.output)

    async def create_session(self, context: Sequence[Message] | None = None) -> AgentSession:  # noqa: ARG002
        raise BackendSessionError("a scenario has no conversation")

    async def teardown(self) -> None:
        """Close a backend."""
        if isinstance(self._target, AgentBackend):
            await self._target.teardown()

    async def _answer(self, message: str, context: Context | None) -> AgentResult:
        target = self._target
        if isinstance(target, AgentCall):
            call = target.bind(message, context, context)
            value = await call_user_function(call, target.function)
        else:
            await target.initialize()
            value = await target.invoke_once(message)
        if isinstance(value, AgentResult):
            return value.model_copy()  # an adapter may fill the same object for the next answer
        return _to_agent_result(parse_result(value))


def describe_failure(error: BackendError) -> str:
    """Return why the agent did not answer, as `Type: message`."""
    if isinstance(error, BackendTimeoutError):
        return f"TimeoutError: {error}"
    if type(error) is BackendSessionError and error.__cause__ is not None:
        return str(error)  # type and message of what the agent raised
    return f"{type(error).__name__}: {error}"


def _takes_no_context(target: AgentCall) -> bool:
    return target.context == "left out" and target.case_context is None


def _agent_function(adapter: object) -> AgentCall:
    """Return how to call it; one that takes any keyword gets the context by name."""
    try:
        target = find_call(adapter)
    except UnusableAgent as error:
        raise ConfigError(WHERE, str(error)) from error
    kinds = {parameter.kind for parameter in inspect.signature(target.function).parameters.values()}
    takes_any = _takes_no_context(target) and inspect.Parameter.VAR_KEYWORD in kinds
    if target.case_context is not None:
        return replace(target, context="left out")
    return replace(target, context="by name") if takes_any else target


def _to_agent_result(answer: ExecutionResult) -> AgentResult:
    """Convert a backend's result. Raises BackendSessionError if it is a failure."""
    if answer.is_error:
        raise BackendSessionError(answer.error_reason or "the agent failed and gave no reason")
    result = AgentResult(output=answer.response, raw_response=answer)
    usage = answer.token_usage
    if usage is not None and usage.total_tokens:
        result.token_usage = TokenUsage(
            prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens
        )
    if answer.tool_calls is not None and answer.tool_calls_problem is None:
        result.tool_calls = [
            ToolCall(name=call.name, arguments=call.args, result=call.result)
            for call in pair_tool_calls(answer.tool_calls, answer.tool_results)
        ]
    return result


def _uncopyable(context: Context | None) -> dict[int, Any]:
    """Return the values that cannot be copied, by `id()`; a warning says that they are shared."""
    shared = {}
    for key, value in (context or {}).items():
        try:
            deepcopy(value)
        except Exception as error:  # noqa: BLE001 - the user's object may raise anything
            shared[id(value)] = value
            logger.warning(
                "context[%r] cannot be copied (%s), so all scenarios share it; if one changes it,"
                " the next one sees that. Give its class a __deepcopy__, or make it in the adapter",
                key,
                describe(error),
            )
    return shared
