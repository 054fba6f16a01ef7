"""A loaded agent in Python: an AgentBackend, an object of a framework, or a function."""

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from functools import partial

from holodeck.errors import BackendError, BackendSessionError, BackendTimeoutError, ConfigError
from holodeck.lib.backends.base import (
    NO_CONTEXT_PARAMETER,
    AcceptsContext,
    AcceptsHistory,
    AgentBackend,
    AgentSession,
    CaseContext,
    ExecutionResult,
    Message,
    Method,
    backend_in_context,
    history_problem,
    open_session,
)
from holodeck.lib.backends.frameworks import adapt, find_framework
from holodeck.lib.backends.frameworks.base import (
    FrameworkAdapter,
    FrameworkError,
    FrameworkSession,
    TurnRecord,
    split_run,
)
from holodeck.lib.backends.parsing import parse_result
from holodeck.lib.backends.shared_state import SharedState
from holodeck.lib.backends.user_agents import AgentFunction, close_agent, find_agent_function
from holodeck.lib.llm import provider_errors
from holodeck.lib.llm.errors import error_chain
from holodeck.lib.llm.limits import call_with_limit, stream_with_limit
from holodeck.lib.support.signatures import is_async
from holodeck.lib.support.text import describe

LOCATION = "backend"
"""The key of the agent.yaml that messages name."""


class LoadedAgent(ABC):
    """An agent that can be asked."""

    is_concurrent: bool
    """Whether it may answer several conversations at a time, if they do not share it."""
    takes_case_context: bool
    tools: list[str] | None = None
    """Names of the tools that it can call; None if unknown."""
    kind: str
    """What it is, such as `function answer`."""

    @abstractmethod
    async def ask(
        self,
        message: str,
        context: Sequence[Message],
        case_context: CaseContext | None,
        limit_s: float | None,
    ) -> ExecutionResult:
        """Return the response to one message of a case. Raises BackendError."""

    @abstractmethod
    async def open(
        self, context: Sequence[Message], case_context: CaseContext | None, limit_s: float | None
    ) -> AgentSession:
        """Return a conversation, after the earlier messages. Raises BackendError."""

    @abstractmethod
    async def close(self) -> None:
        """Release what the agent holds."""

    def history_problem(self, method: Method) -> str | None:  # noqa: ARG002 - for some kinds
        """Return why the agent cannot be given earlier messages; None if it can."""
        return None


class BackendAgent(LoadedAgent):
    """An object that implements AgentBackend."""

    is_concurrent = False

    def __init__(self, backend: AgentBackend) -> None:
        self._backend = backend
        self.takes_case_context = isinstance(backend, AcceptsContext)
        self.kind = f"AgentBackend {type(backend).__name__}"

    async def ask(
        self,
        message: str,
        context: Sequence[Message],
        case_context: CaseContext | None,
        limit_s: float | None,
    ) -> ExecutionResult:
        backend = backend_in_context(self._backend, case_context, LOCATION)
        return await call_with_limit(partial(backend.invoke_once, message, context), limit_s)

    async def open(
        self, context: Sequence[Message], case_context: CaseContext | None, limit_s: float | None
    ) -> AgentSession:
        backend = backend_in_context(self._backend, case_context, LOCATION)
        session = await call_with_limit(partial(open_session, backend, context), limit_s)
        accepts_history = isinstance(session, AcceptsHistory)
        kind = LimitedSessionWithHistory if accepts_history else LimitedSession
        return kind(session, limit_s)

    def history_problem(self, method: Method) -> str | None:
        return history_problem(self._backend, method)

    async def close(self) -> None:
        await self._backend.teardown()


class FrameworkAgent(LoadedAgent):
    """An object of an agent framework."""

    takes_case_context = False

    def __init__(self, adapter: FrameworkAdapter, agent: object, framework: str) -> None:
        self._adapter = adapter
        self.is_concurrent = adapter.is_concurrent
        self.tools = adapter.tools()
        self.kind = f"{type(split_run(agent)[0]).__name__} of {framework}"

    async def ask(
        self,
        message: str,
        context: Sequence[Message],
        case_context: CaseContext | None,  # noqa: ARG002 - it takes none
        limit_s: float | None,
    ) -> ExecutionResult:
        return await ask_once(self._adapter, message, context, limit_s)

    async def open(
        self,
        context: Sequence[Message],
        case_context: CaseContext | None,  # noqa: ARG002 - it takes none
        limit_s: float | None,
    ) -> AgentSession:
        return await FrameworkConversation.open(self._adapter, context, limit_s)

    async def close(self) -> None:
        await self._adapter.close()


class FunctionAgent(LoadedAgent):
    """A function, or an object with a method that answers."""

    def __init__(self, agent: object) -> None:
        self._agent = agent
        self._function: AgentFunction = find_agent_function(agent, LOCATION)
        self._state = None if inspect.isroutine(agent) else SharedState(agent)
        self.is_concurrent = is_async(self._function.function)
        self.takes_case_context = self._function.case_context is not None
        if inspect.isroutine(agent):
            self.kind = f"{'async ' if is_async(agent) else ''}function {agent.__name__}"
        else:
            self.kind = f"object of the class {type(agent).__name__}"

    async def ask(
        self,
        message: str,
        context: Sequence[Message],
        case_context: CaseContext | None,
        limit_s: float | None,
    ) -> ExecutionResult:
        if self._state is not None:
            self._state.begin(message)
        call = partial(self._function.answer, message, context, case_context)
        return await call_with_limit(call, limit_s)

    async def open(
        self, context: Sequence[Message], case_context: CaseContext | None, limit_s: float | None
    ) -> AgentSession:
        return CallableSession(self._function, limit_s, case_context, context, self._state)

    def history_problem(self, method: Method) -> str | None:  # noqa: ARG002 - the same for both
        return NO_CONTEXT_PARAMETER if self._function.context == "left out" else None

    async def close(self) -> None:
        await close_agent(self._agent)


def recognize(agent: object, *, tools_run_no_agents: bool = False) -> LoadedAgent:
    """Return the agent as what it is. Raises ConfigError for an unknown shape, FrameworkError."""
    if isinstance(agent, AgentBackend):
        return BackendAgent(agent)
    adapter, framework = adapt(agent), find_framework(agent)
    if adapter is not None and framework is not None:
        adapter.tools_run_no_agents = tools_run_no_agents
        return FrameworkAgent(adapter, agent, framework.name)
    return FunctionAgent(agent)


class CallableSession:
    """A conversation that passes its history to the agent's function as context."""

    def __init__(
        self,
        function: AgentFunction,
        limit_s: float | None,
        case_context: CaseContext | None,
        context: Sequence[Message],
        state: SharedState | None = None,
    ) -> None:
        self._function = function
        self._state = state
        self._limit_s = limit_s
        self._case_context = case_context
        self._history: list[Message] = list(context)
        self._is_closed = False

    async def send(self, message: str) -> ExecutionResult:
        if self._is_closed:
            raise BackendSessionError("the conversation is closed")
        if self._state is not None:
            self._state.begin(message)
            self._state = None
        history = tuple(self._history)
        call = partial(self._function.answer, message, history, self._case_context)
        result = await call_with_limit(call, self._limit_s)
        self._history.append({"role": "user", "content": message})
        self._history.append({"role": "assistant", "content": result.response})
        return result

    def remember(self, messages: Sequence[Message]) -> None:
        """Append messages to the history. Raises ConfigError if the agent takes no context."""
        if self._function.context == "left out":
            raise ConfigError(LOCATION, NO_CONTEXT_PARAMETER)
        self._history += messages

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        yield (await self.send(message)).response

    async def close(self) -> None:
        self._is_closed = True


class LimitedSession:
    """A session of the user's backend, with time limits and typed errors."""

    def __init__(self, session: AgentSession, limit_s: float | None) -> None:
        self._session = session
        self._limit_s = limit_s

    async def send(self, message: str) -> ExecutionResult:
        return await call_with_limit(partial(self._session.send, message), self._limit_s)

    def send_streaming(self, message: str) -> AsyncIterator[str]:
        """Yield the agent's response in pieces, each within the limit. Raises BackendError."""
        return stream_with_limit(self._session.send_streaming(message), self._limit_s)

    async def close(self) -> None:
        await self._session.close()


class LimitedSessionWithHistory(LimitedSession):
    """A session of the user's backend that accepts earlier messages."""

    def remember(self, messages: Sequence[Message]) -> None:
        assert isinstance(self._session, AcceptsHistory)  # noqa: S101 - checked by `open`
        self._session.remember(messages)


class OwningSession:
    """A conversation with an agent of its own, which is closed with it."""

    def __init__(self, session: AgentSession, agent: LoadedAgent) -> None:
        self._session = session
        self._agent = agent
        self._is_closed = False

    async def send(self, message: str) -> ExecutionResult:
        return await self._session.send(message)

    def send_streaming(self, message: str) -> AsyncIterator[str]:
        return self._session.send_streaming(message)

    def remember(self, messages: Sequence[Message]) -> None:
        assert isinstance(self._session, AcceptsHistory)  # noqa: S101 - only AgentBackends may not
        self._session.remember(messages)

    async def close(self) -> None:
        """Close the session and the agent; may be called twice."""
        was_closed, self._is_closed = self._is_closed, True
        if not was_closed:
            await self._session.close()
            await self._agent.close()


_LOOP = re.compile(r"[Ee]vent loop is closed|(different|another) (event )?loop")


class FrameworkConversation:
    """A session of an adapter, with time limits; its failures carry what was seen until then.

    Args:
        session: The session.
        adapter: The adapter that opened it.
        limit_s: Seconds for each turn; None for no limit.
    """

    def __init__(
        self, session: FrameworkSession, adapter: FrameworkAdapter, limit_s: float | None
    ) -> None:
        self._session = session
        self._tools = adapter.tools()
        self._reads_errors = "tool errors" in adapter.reads
        self._limit_s = limit_s

    @classmethod
    async def open(
        cls, adapter: FrameworkAdapter, context: Sequence[Message], limit_s: float | None
    ) -> "FrameworkConversation":
        """Return a new conversation, after the earlier messages. Raises BackendError."""
        session = await call_with_limit(partial(adapter.open, context), limit_s)
        session.tools_run_no_agents = adapter.tools_run_no_agents
        return cls(session, adapter, limit_s)

    async def send(self, message: str) -> ExecutionResult:
        try:
            return await call_with_limit(partial(self._send, message), self._limit_s)
        except BackendTimeoutError as error:
            error.seen = self._result(self._session.turn)
            raise

    def send_streaming(self, message: str) -> AsyncIterator[str]:
        """Yield the agent's response in pieces, each within the limit. Raises BackendError."""
        return stream_with_limit(self._session.send_streaming(message), self._limit_s)

    def remember(self, messages: Sequence[Message]) -> None:
        self._session.remember(messages)

    async def close(self) -> None:
        await self._session.close()

    async def _send(self, message: str) -> ExecutionResult:
        try:
            return self._result(await self._session.take_turn(message))
        except BackendError:
            raise
        except Exception as error:
            seen = self._result(self._session.turn)
            refusal = provider_errors.refusal_in(error)
            raise BackendSessionError(_describe(error), seen=seen, refusal=refusal) from error

    def _result(self, turn: TurnRecord) -> ExecutionResult:
        result = parse_result(turn)
        result.tools = self._tools
        if not self._reads_errors:
            for one in result.tool_results:
                one["is_error_unknown"] = not one.get("is_error")
        return result


def _describe(error: Exception) -> str:
    """Return what happened, and what to do if the agent's client is bound to another loop."""
    if isinstance(error, FrameworkError):
        return str(error)
    is_of_provider = provider_errors.is_provider_error(error)
    message = provider_errors.describe(error) if is_of_provider else describe(error)
    causes = [one for one in error_chain(error) if isinstance(one, RuntimeError)]
    if any(_LOOP.search(str(cause)) for cause in causes):
        return (
            "the agent, or its client, was used on another event loop; create it in a function"
            f" without parameters, and name that function: each run then has its own ({message})"
        )
    return message


async def ask_once(
    adapter: FrameworkAdapter, message: str, context: Sequence[Message], limit_s: float | None
) -> ExecutionResult:
    """Return the response to one message in a conversation of its own. Raises BackendError."""
    conversation = await FrameworkConversation.open(adapter, context, limit_s)
    try:
        return await conversation.send(message)
    finally:
        await conversation.close()
