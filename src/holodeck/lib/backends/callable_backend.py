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
from holodeck.lib.backends.user_agents import (
    AgentFunction,
    close_agent,
    find_agent_function,
    is_factory,
)
from holodeck.lib.exceptions import with_place
from holodeck.lib.llm.limits import call_limits, call_with_limit
from holodeck.lib.registry import load_attribute
from holodeck.lib.threads import call_user_function, is_async
from holodeck.models.config import ExecutionConfig

WHERE = "backend"


class CallableBackend:
    """Reaches an agent by calling it.

    A class is instantiated anew for every conversation, so that no case sees what another one
    left in it; a function, an object, and what a function without parameters makes are shared by
    all. Something that keeps the AgentBackend protocol is used as it is. Calls are not tried
    again: only the user knows whether that would do harm.

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
        self._backend: AgentBackend | None = None
        """The agent, if it is one that keeps the protocol."""
        self._entry: AgentFunction | None = None
        """How an agent is asked that all cases share; found out once."""
        self._spare: Any = None
        self.shares_nothing = False
        """Whether cases share no object and wait without blocking, so that several may run at once
        by default: a coroutine function, or a class whose method is one. Known once initialized."""
        self._is_ready = False

    async def initialize(self) -> None:
        """Import the agent, and make one where it is a class. Raises BackendInitError."""
        if self._is_ready:
            return
        try:
            await self._load()
        except HoloDeckError:
            raise
        except (Exception, SystemExit) as error:
            raise BackendInitError(f"the agent cannot be made: {with_place(error)}") from error
        self._is_ready = True

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        """The answer to one message. Raises BackendError."""
        return await self.ask(message, context or ())

    async def create_session(self, context: Sequence[Message] | None = None) -> AgentSession:
        """A conversation; it passes on what was said as context. Raises BackendError."""
        return await self.open(context or ())

    def in_context(self, context: CaseContext) -> AgentBackend:
        """The same for a case with a context. Raises ConfigError for an agent that takes none."""
        agent = self._agent
        if self._backend is not None:
            takes_it = isinstance(self._backend, AcceptsContext)
        else:
            made = agent if self._spare is None else self._spare
            takes_it = (
                inspect.isclass(made) or find_agent_function(made, WHERE).case_context is not None
            )
        if self._is_ready and not takes_it:
            raise ConfigError(WHERE, NO_CASE_CONTEXT_PARAMETER)
        return _InContext(self, context)

    async def ask(
        self, message: str, context: Sequence[Message], of_case: CaseContext | None = None
    ) -> ExecutionResult:
        """The answer to one message of a case that may have a context. Raises BackendError."""
        await self.initialize()
        if self._backend is not None:
            once = _told(self._backend, of_case).invoke_once
            return await call_with_limit(partial(once, message, context), self._timeout)
        return await call_with_limit(
            partial(self._ask_once, message, context, of_case), self._timeout
        )

    async def open(
        self, context: Sequence[Message], of_case: CaseContext | None = None
    ) -> AgentSession:
        """A conversation after the earlier messages, of a case that may have a context of its own.

        Raises BackendError.
        """
        await self.initialize()
        if self._backend is not None:
            opened = partial(open_session, _told(self._backend, of_case), context)
            return _in_limits(await call_with_limit(opened, self._timeout), self._timeout)
        agent = await call_with_limit(self._opened, self._timeout)
        owns = inspect.isclass(self._agent)
        return CallableSession(
            agent, self._timeout, owns_agent=owns, of_case=of_case, context=context
        )

    def why_forgetful(self, method: Method) -> str | None:
        """Why the agent cannot be told what was said before; None if it can.

        Known once it is initialized.
        """
        if self._backend is not None:
            return history_problem(self._backend, method)
        agent = self._spare if inspect.isclass(self._agent) else self._agent
        if agent is not None and find_agent_function(agent, WHERE).context == "left out":
            return NO_CONTEXT_PARAMETER
        return None

    async def teardown(self) -> None:
        """Close what was made; the next call makes it anew."""
        agent, spare, was_ready = self._agent, self._spare, self._is_ready
        backend, self._backend = self._backend, None
        self._agent = self._entry = self._spare = None
        self._is_ready = False
        if not was_ready:
            return
        if backend is not None:
            await backend.teardown()
        elif inspect.isclass(agent):
            await close_agent(spare)
        else:
            await close_agent(agent)

    async def _load(self) -> None:
        value = self._target
        if isinstance(value, str):
            value = load_attribute(value, self._base_dir, where=WHERE)
        if is_factory(value):
            value = await call_user_function(value, value)  # type: ignore[arg-type]
        made = await call_user_function(value, value) if inspect.isclass(value) else value
        if isinstance(made, AgentBackend):
            await made.initialize()
            self._agent = self._backend = made
            return
        entry = find_agent_function(made, WHERE)
        self._agent = value
        if inspect.isclass(value):
            self._spare = made
            self.shares_nothing = is_async(entry.function)
        else:
            self._entry = entry
            self.shares_nothing = inspect.isfunction(value) and is_async(value)

    async def _opened(self) -> Any:
        """An agent for one conversation."""
        if not inspect.isclass(self._agent):
            return self._agent
        spare, self._spare = self._spare, None
        return spare if spare is not None else await call_user_function(self._agent, self._agent)

    async def _ask_once(
        self, message: str, context: Sequence[Message], of_case: CaseContext | None
    ) -> ExecutionResult:
        agent = await self._opened()
        try:
            entry = self._entry or find_agent_function(agent, WHERE)
            return await entry.answer(message, context, of_case)
        finally:
            if inspect.isclass(self._agent):
                await close_agent(agent)


def _told(agent: AgentBackend, context: CaseContext | None) -> AgentBackend:
    return agent if context is None else backend_in_context(agent, context, WHERE)


class _InContext:
    """A backend for one case, whose context it passes on."""

    def __init__(self, backend: CallableBackend, context: CaseContext) -> None:
        self._backend = backend
        self._context = context

    async def initialize(self) -> None:
        """Make the backend ready."""
        await self._backend.initialize()

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        """The answer to one message. Raises BackendError."""
        return await self._backend.ask(message, context or (), self._context)

    async def create_session(self, context: Sequence[Message] | None = None) -> AgentSession:
        """A conversation after the earlier messages. Raises BackendError."""
        return await self._backend.open(context or (), self._context)

    async def teardown(self) -> None:
        """Nothing: the backend serves other cases too."""


class CallableSession:
    """A conversation whose history is passed to the agent as context."""

    def __init__(
        self,
        agent: Any,
        timeout: float | None,
        *,
        owns_agent: bool,
        of_case: CaseContext | None = None,
        context: Sequence[Message] = (),
    ) -> None:
        self._agent = agent
        self._of_case = of_case
        self._entry: AgentFunction = find_agent_function(agent, WHERE)
        self._timeout = timeout
        self._owns_agent = owns_agent
        self._history: list[Message] = list(context)
        self._is_closed = False

    async def send(self, message: str) -> ExecutionResult:
        """The agent's answer. Raises BackendError."""
        if self._is_closed:
            raise BackendSessionError("the conversation is closed")
        result = await call_with_limit(
            partial(self._entry.answer, message, tuple(self._history), self._of_case),
            self._timeout,
        )
        self._history.append({"role": "user", "content": message})
        self._history.append({"role": "assistant", "content": result.response})
        return result

    def remember(self, messages: Sequence[Message]) -> None:
        """Take the messages for said. Raises ConfigError for an agent that is told of none."""
        if self._entry.context == "left out":
            raise ConfigError(WHERE, NO_CONTEXT_PARAMETER)
        self._history += messages

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        """The agent's answer in one piece. Raises BackendError."""
        yield (await self.send(message)).response

    async def close(self) -> None:
        """Close the agent, if it was made for this conversation; may be called twice."""
        was_closed, self._is_closed = self._is_closed, True
        if self._owns_agent and not was_closed:
            await close_agent(self._agent)


class LimitedSession:
    """A session of the user's, with time limits and typed errors."""

    def __init__(self, session: AgentSession, timeout: float | None) -> None:
        self._session = session
        self._timeout = timeout

    async def send(self, message: str) -> ExecutionResult:
        """The agent's answer. Raises BackendError."""
        return await call_with_limit(partial(self._session.send, message), self._timeout)

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        """The agent's answer in pieces, each within the time limit. Raises BackendError."""
        pieces = aiter(self._session.send_streaming(message))
        while True:
            try:
                piece = await call_with_limit(partial(_next, pieces), self._timeout)
            except _Ended:
                return
            yield piece

    async def close(self) -> None:
        """Close the user's session."""
        await self._session.close()


class LimitedSessionWithHistory(LimitedSession):
    """One that can be told what was said without it."""

    def __init__(
        self, session: AgentSession, memory: AcceptsHistory, timeout: float | None
    ) -> None:
        super().__init__(session, timeout)
        self._memory = memory

    def remember(self, messages: Sequence[Message]) -> None:
        """Take the messages for said."""
        self._memory.remember(messages)


def _in_limits(session: AgentSession, timeout: float | None) -> LimitedSession:
    if isinstance(session, AcceptsHistory):
        return LimitedSessionWithHistory(session, session, timeout)
    return LimitedSession(session, timeout)


class _Ended(BackendSessionError):
    """The last piece was given."""


async def _next(pieces: AsyncIterator[str]) -> str:
    try:
        return await anext(pieces)
    except StopAsyncIteration as error:
        raise _Ended("") from error
