"""Agents that are the user's Python code: `backend: "module:attribute"`."""

import inspect
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from holodeck.errors import BackendInitError, BackendSessionError, ConfigError, HoloDeckError
from holodeck.lib.backends.base import (
    NO_CASE_CONTEXT_PARAMETER,
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
from holodeck.lib.backends.description import AgentDescription
from holodeck.lib.backends.framework_session import FrameworkConversation, ask_once
from holodeck.lib.backends.frameworks import adapt, find_framework
from holodeck.lib.backends.frameworks.base import FrameworkAdapter, FrameworkError, split_run
from holodeck.lib.backends.user_agents import (
    AgentFunction,
    close_agent,
    find_agent_function,
)
from holodeck.lib.exceptions import with_location
from holodeck.lib.llm.limits import call_limits, call_with_limit, stream_with_limit
from holodeck.lib.registry import load_attribute
from holodeck.lib.signatures import is_async, is_factory
from holodeck.lib.threads import call_user_function
from holodeck.models.config import ExecutionConfig

LOCATION = "backend"
"""The key of the agent.yaml that messages name."""


class CallableBackend:
    """Reaches an agent by calling it.

    A class is instantiated for every conversation, so that cases share no state. A function, an
    object, and what a function without parameters returns are shared by all cases. An object that
    implements AgentBackend is used as it is; an agent of a framework, through its adapter. Calls
    are not retried: only the user knows whether that would do harm.

    Args:
        target: `module:attribute`, or the agent itself.
        base_dir: Where modules are looked for first.
        execution: Time limits; their defaults if not given.
    """

    def __init__(
        self,
        target: object,
        base_dir: Path | None = None,
        execution: ExecutionConfig | None = None,
    ) -> None:
        self._target = target
        self._base_dir = base_dir
        self._timeout = call_limits(execution).timeout
        self._agent: Any = None
        """The shared agent, or the class of which each conversation gets an instance."""
        self._backend: AgentBackend | None = None
        """The agent, if it implements AgentBackend."""
        self._framework: FrameworkAdapter | None = None
        """The adapter of the agent, if it is an object of a framework."""
        self._function: AgentFunction | None = None
        """The function of a shared agent."""
        self._spare: Any = None
        """The first instance of a class, for the first conversation."""
        self.shares_nothing = False
        """Whether cases share no object and wait without blocking, so that several may run
        concurrently by default: a coroutine function, or a class whose method is one. Known once
        initialized."""
        self._is_ready = False

    async def initialize(self) -> None:
        """Import the agent, and instantiate it if it is a class. Raises BackendInitError."""
        if self._is_ready:
            return
        try:
            await self._load()
        except HoloDeckError:
            raise
        except FrameworkError as error:
            raise BackendInitError(str(error)) from error
        except (Exception, SystemExit) as error:
            raise BackendInitError(
                f"the agent cannot be created: {with_location(error)}"
            ) from error
        self._is_ready = True

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        return await self.ask(message, context or ())

    async def create_session(self, context: Sequence[Message] | None = None) -> AgentSession:
        """Return a conversation; it passes earlier messages as context. Raises BackendError."""
        return await self.open(context or ())

    def in_context(self, context: CaseContext) -> AgentBackend:
        """Return the backend for a case with a context.

        Raises ConfigError if the agent takes none.
        """
        if self._is_ready and not self._takes_case_context():
            raise ConfigError(LOCATION, NO_CASE_CONTEXT_PARAMETER)
        return _InContext(self, context)

    async def ask(
        self, message: str, context: Sequence[Message], case_context: CaseContext | None = None
    ) -> ExecutionResult:
        """Return the response to one message of a case. Raises BackendError."""
        await self.initialize()
        if self._backend is not None:
            backend = backend_in_context(self._backend, case_context, LOCATION)
            call = partial(backend.invoke_once, message, context)
        elif self._framework is not None:
            return await ask_once(self._framework, message, context, self._timeout)
        else:
            call = partial(self._ask_once, message, context, case_context)
        return await call_with_limit(call, self._timeout)

    async def open(
        self, context: Sequence[Message], case_context: CaseContext | None = None
    ) -> AgentSession:
        """Return a conversation of a case, after the earlier messages. Raises BackendError."""
        await self.initialize()
        if self._backend is not None:
            backend = backend_in_context(self._backend, case_context, LOCATION)
            keep_open = partial(open_session, backend, context)
            session = await call_with_limit(keep_open, self._timeout)
            accepts_history = isinstance(session, AcceptsHistory)
            kind = LimitedSessionWithHistory if accepts_history else LimitedSession
            return kind(session, self._timeout)
        if self._framework is not None:
            return await FrameworkConversation.open(self._framework, context, self._timeout)
        agent = await call_with_limit(self._take_agent, self._timeout)
        return CallableSession(
            agent,
            self._timeout,
            owns_agent=inspect.isclass(self._agent),
            case_context=case_context,
            context=context,
        )

    def history_problem(self, method: Method) -> str | None:
        """Return why the agent cannot be given earlier messages; None if it can.

        Known once initialized.
        """
        if self._backend is not None:
            return history_problem(self._backend, method)
        if self._framework is not None:
            return None
        agent = self._spare if inspect.isclass(self._agent) else self._agent
        if agent is not None and find_agent_function(agent, LOCATION).context == "left out":
            return NO_CONTEXT_PARAMETER
        return None

    def describe(self) -> AgentDescription:
        """Return what the agent is. Known once initialized."""
        agent = self._agent if self._spare is None else self._spare
        framework = find_framework(agent)
        if self._framework is not None and framework is not None:
            kind = f"{type(split_run(agent)[0]).__name__} of {framework.name}"
        elif self._backend is not None:
            kind = f"AgentBackend {type(agent).__name__}"
        elif inspect.isroutine(agent):
            kind = f"{'async ' if is_async(agent) else ''}function {agent.__name__}"
        else:
            is_class = inspect.isclass(self._agent)
            kind = f"{'class' if is_class else 'object of the class'} {type(agent).__name__}"
        tools = None if self._framework is None else self._framework.tools()
        return AgentDescription(kind, tools, self.history_problem("create_session"))

    async def teardown(self) -> None:
        """Close the agent; the next call makes a new one."""
        agent, spare, was_ready = self._agent, self._spare, self._is_ready
        backend, self._backend = self._backend, None
        framework, self._framework = self._framework, None
        self._agent = self._function = self._spare = None
        self._is_ready = False
        if not was_ready:
            return
        if backend is not None:
            await backend.teardown()
        elif framework is not None:
            await framework.close()
        elif inspect.isclass(agent):
            await close_agent(spare)
        else:
            await close_agent(agent)

    async def _load(self) -> None:
        value = self._target
        if isinstance(value, str):
            value = load_attribute(value, self._base_dir, location=LOCATION)
        if is_factory(value):
            value = await call_user_function(value, value)  # type: ignore[arg-type]
        agent = await call_user_function(value, value) if inspect.isclass(value) else value
        if isinstance(agent, AgentBackend):
            await agent.initialize()
            self._agent = self._backend = agent
            return
        self._framework = adapt(agent)
        if self._framework is not None:
            self._agent, self.shares_nothing = agent, self._framework.is_concurrent
            return
        function = find_agent_function(agent, LOCATION)
        self._agent = value
        if inspect.isclass(value):
            self._spare = agent
            self.shares_nothing = is_async(function.function)
        else:
            self._function = function
            self.shares_nothing = inspect.isfunction(value) and is_async(value)

    def _takes_case_context(self) -> bool:
        if self._backend is not None:
            return isinstance(self._backend, AcceptsContext)
        if self._framework is not None:
            return False
        agent = self._agent if self._spare is None else self._spare
        if inspect.isclass(agent):  # its instances were not looked at
            return True
        return find_agent_function(agent, LOCATION).case_context is not None

    async def _take_agent(self) -> Any:
        """Return the agent for one conversation."""
        if not inspect.isclass(self._agent):
            return self._agent
        spare, self._spare = self._spare, None
        return spare if spare is not None else await call_user_function(self._agent, self._agent)

    async def _ask_once(
        self, message: str, context: Sequence[Message], case_context: CaseContext | None
    ) -> ExecutionResult:
        agent = await self._take_agent()
        try:
            function = self._function or find_agent_function(agent, LOCATION)
            return await function.answer(message, context, case_context)
        finally:
            if inspect.isclass(self._agent):
                await close_agent(agent)


class _InContext:
    """The backend for one case, with the case's context."""

    def __init__(self, backend: CallableBackend, context: CaseContext) -> None:
        self._backend = backend
        self._context = context

    async def initialize(self) -> None:
        await self._backend.initialize()

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        return await self._backend.ask(message, context or (), self._context)

    async def create_session(self, context: Sequence[Message] | None = None) -> AgentSession:
        return await self._backend.open(context or (), self._context)

    async def teardown(self) -> None:
        """Do nothing: other cases use the backend, too."""


class CallableSession:
    """A conversation that passes its history to the agent's function as context."""

    def __init__(
        self,
        agent: Any,
        timeout: float | None,
        *,
        owns_agent: bool,
        case_context: CaseContext | None = None,
        context: Sequence[Message] = (),
    ) -> None:
        self._agent = agent
        self._case_context = case_context
        self._function = find_agent_function(agent, LOCATION)
        self._timeout = timeout
        self._owns_agent = owns_agent
        self._history: list[Message] = list(context)
        self._is_closed = False

    async def send(self, message: str) -> ExecutionResult:
        if self._is_closed:
            raise BackendSessionError("the conversation is closed")
        history = tuple(self._history)
        call = partial(self._function.answer, message, history, self._case_context)
        result = await call_with_limit(call, self._timeout)
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
        """Close the agent, if it was made for this conversation; may be called twice."""
        was_closed, self._is_closed = self._is_closed, True
        if self._owns_agent and not was_closed:
            await close_agent(self._agent)


class LimitedSession:
    """A session of the user's backend, with time limits and typed errors."""

    def __init__(self, session: AgentSession, timeout: float | None) -> None:
        self._session = session
        self._timeout = timeout

    async def send(self, message: str) -> ExecutionResult:
        return await call_with_limit(partial(self._session.send, message), self._timeout)

    def send_streaming(self, message: str) -> AsyncIterator[str]:
        """Yield the agent's response in pieces, each within the limit. Raises BackendError."""
        return stream_with_limit(self._session.send_streaming(message), self._timeout)

    async def close(self) -> None:
        await self._session.close()


class LimitedSessionWithHistory(LimitedSession):
    """A session of the user's backend that accepts earlier messages."""

    def remember(self, messages: Sequence[Message]) -> None:
        assert isinstance(self._session, AcceptsHistory)  # noqa: S101 - checked by `open`
        self._session.remember(messages)
