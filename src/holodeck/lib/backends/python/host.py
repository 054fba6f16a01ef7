"""The host of Python agents: makes them, and holds conversations with them.

The agents of this process and those of a process backend share it. The interpreter of the latter
is the user's: this module and what it imports run on Python 3.9 with the standard library.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from holodeck.lib.processes.threads import call_user_function
from holodeck.lib.support.approvals import ApprovalDecisions
from holodeck.lib.support.signatures import (
    METHODS,
    AgentCall,
    UnusableAgent,
    find_call,
    is_async,
    is_factory,
)
from holodeck.lib.support.text import describe, instance_of

if TYPE_CHECKING:
    from holodeck.lib.backends.frameworks.base import FrameworkAdapter, FrameworkSession

logger = logging.getLogger(__name__)
CLOSING_FAILED = "closing the agent failed: %s"

ASYNC_CONCURRENCY = 10
"""How many messages an agent takes at a time, by default, if its conversations share nothing."""
Messages = Sequence[Any]
"""Earlier messages of a conversation, each a mapping with `role` and `content`."""
CaseContext = Mapping[str, Any]
ReadAnswer = Callable[[Any], "tuple[Any, str]"]
"""Returns an agent's answer as the caller of the host wants it, and the text of the answer."""
OnPiece = Callable[[str], None]
ENTER_S = 60.0
EXIT_S = 10.0
"""How long the context manager of an agent may take to enter, and to exit."""


class AgentConversation(ABC):
    """A conversation with an agent."""

    agent: HostedAgent | None = None
    """An agent that was made for this conversation, and is closed with it."""

    @abstractmethod
    async def send(self, message: str, on_piece: OnPiece | None = None) -> Any:
        """Return the answer; `on_piece` gets its pieces if the agent's framework streams."""

    @abstractmethod
    def remember(self, messages: Messages) -> None:
        """Append messages that the agent did not take part in."""

    def unfinished_answer(self) -> Any:
        """Return what is known of a turn that failed; None if nothing is."""
        return None

    async def close(self) -> None:
        """Release what the conversation holds; may be called twice."""
        agent, self.agent = self.agent, None
        if agent is not None:
            await agent.close()


class FunctionConversation(AgentConversation):
    """A conversation that passes its history to a function; a failed turn leaves it unchanged."""

    def __init__(
        self, call: AgentCall, read: ReadAnswer, messages: Messages, context: CaseContext | None
    ) -> None:
        self._call = call
        self._read = read
        self._history = list(messages)
        self._context = context

    async def send(self, message: str, on_piece: OnPiece | None = None) -> Any:
        call = self._call.bind(message, [*self._history], self._context)
        value = await call_user_function(call, self._call.function)
        if inspect.isasyncgen(value) or inspect.isgenerator(value):
            value = await _joined(value, on_piece)
        answer, text = self._read(value)
        self._history.append({"role": "user", "content": message})
        self._history.append({"role": "assistant", "content": text})
        return answer

    def remember(self, messages: Messages) -> None:
        self._history += messages


async def _joined(pieces: Any, on_piece: OnPiece | None) -> str:
    """Return the text whose pieces a generator of the user yields."""
    texts: list[str] = []

    def add(piece: Any) -> None:
        if not isinstance(piece, str):
            raise TypeError(
                f"the agent yielded {instance_of(piece)}; yield the pieces of the answer as"
                " text, or return the answer"
            )
        texts.append(piece)
        if on_piece is not None:
            on_piece(piece)

    async def read() -> None:
        try:
            async for piece in pieces:
                add(piece)
        finally:
            await pieces.aclose()

    if inspect.isasyncgen(pieces):
        await call_user_function(read, read)
    else:
        for piece in await call_user_function(partial(list, pieces), list):
            add(piece)
    return "".join(texts)


class FrameworkConversation(AgentConversation):
    """A conversation with an agent of a framework."""

    def __init__(self, session: FrameworkSession, read: ReadAnswer) -> None:
        self._session = session
        self._read = read

    async def send(self, message: str, on_piece: OnPiece | None = None) -> Any:
        if isinstance(message, ApprovalDecisions):
            return self._read(await self._session.resume_turn(message.decisions))[0]
        return self._read(await self._session.take_turn(message, on_piece))[0]

    def remember(self, messages: Messages) -> None:
        self._session.remember(messages)

    def unfinished_answer(self) -> Any:
        return self._read(self._session.turn)[0]

    async def close(self) -> None:
        await self._session.close()
        await super().close()


class HostedAgent(ABC):
    """An agent that can be asked, and what is known of it."""

    kind: str
    """What it is, such as `function answer`."""
    name: str | None = None
    """What the framework calls it; None if it has no name."""
    is_concurrent = True
    """Whether it may answer several conversations at a time, if they do not share it."""
    is_stateful_object = False
    """Whether it is an object with attributes, which conversations that share it could change."""
    takes_history = True
    takes_context = False
    """Whether the context of a test case reaches it."""
    can_cancel = True
    streams = False
    reads_tool_errors = True
    """Whether a tool result that is not marked as an error is none; else that is unknown."""
    answers_approvals = False
    """Whether it reports what waits for an approval, and takes `ApprovalDecisions`."""
    takes_stubs = True
    """Whether stubs can take the calls of its tools; else only of functions that are marked."""
    tools: list[str] | None = None
    """Names of the tools that it can call; None if unknown."""
    lifespan: Lifespan | None = None
    """The context manager that it lives in; None if there is none."""

    def required_arguments(self) -> dict[str, list[str]]:
        """Return the arguments that each of its tools needs, as far as they are known."""
        return {}

    @abstractmethod
    async def open(
        self, messages: Messages, context: CaseContext | None = None
    ) -> AgentConversation:
        """Return a conversation, after the earlier messages."""

    async def close(self) -> None:
        """Release what the agent holds."""
        lifespan, self.lifespan = self.lifespan, None
        if lifespan is not None:
            await lifespan.exit()


class FunctionAgent(HostedAgent):
    """A function, or an object with a method that answers. Raises UnusableAgent for another."""

    def __init__(self, agent: Any, read: ReadAnswer) -> None:
        self.agent = agent
        self.call = find_call(agent)
        self._read = read
        self.is_concurrent = self.can_cancel = is_async(self.call.function)
        self.is_stateful_object = not inspect.isfunction(agent)
        self.takes_history = self.call.context != "left out"
        self.takes_context = self.call.case_context is not None
        if inspect.isroutine(agent):
            self.kind = f"{'async ' if is_async(agent) else ''}function {agent.__name__}"
        else:
            self.kind = f"object of the class {type(agent).__name__}"

    async def open(
        self, messages: Messages, context: CaseContext | None = None
    ) -> AgentConversation:
        return FunctionConversation(self.call, self._read, messages, context)

    async def close(self) -> None:
        """Exit the agent, or call its `aclose` or `close`; an error is only logged."""
        if self.lifespan is not None:
            await super().close()
            return
        methods = (getattr(self.agent, name, None) for name in ("aclose", "close"))
        method = next(filter(callable, methods), None)
        if method is None:
            return
        try:
            await call_user_function(method, method)
        except Exception as error:  # noqa: BLE001 - a failing clean-up must not lose a response
            logger.warning(CLOSING_FAILED, describe(error))


class FrameworkAgent(HostedAgent):
    """An object of an agent framework."""

    streams = True

    def __init__(
        self, adapter: FrameworkAdapter, kind: str, read: ReadAnswer, *, tools_run_no_agents: bool
    ) -> None:
        self.kind = kind
        self.is_concurrent = adapter.is_concurrent
        self.reads_tool_errors = "tool errors" in adapter.reads
        self.answers_approvals = adapter.answers_approvals
        self.takes_stubs = adapter.takes_stubs
        self.tools = adapter.tools()
        self._adapter = adapter
        self._read = read
        self._tools_run_no_agents = tools_run_no_agents

    def required_arguments(self) -> dict[str, list[str]]:
        return self._adapter.required_arguments()

    async def open(
        self,
        messages: Messages,
        context: CaseContext | None = None,  # noqa: ARG002 - takes none
    ) -> AgentConversation:
        session = await self._adapter.open(messages)
        session.tools_run_no_agents = self._tools_run_no_agents
        return FrameworkConversation(session, self._read)

    async def close(self) -> None:
        await self._adapter.close()
        await super().close()


class Lifespan:
    """A context manager that an agent lives in, held by a task of its own.

    What opens connections often has to exit in the task where it entered, and the conversations
    with an agent run in many.
    """

    def __init__(self, manager: AbstractAsyncContextManager[Any]) -> None:
        self._manager = manager
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def enter(self) -> Any:
        """Return what the context manager yields. Raises what it raises."""
        entered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        hold = partial(self._hold, entered)
        self._task = asyncio.ensure_future(call_user_function(hold, self._hold))
        try:
            await asyncio.wait(
                {self._task, entered}, timeout=ENTER_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            if not entered.done():
                self._task.cancel()
        if not entered.done() and not self._task.done():
            raise UnusableAgent(f"the agent was not entered within {ENTER_S:g} s")
        return entered.result() if entered.done() else self._task.result()

    async def exit(self) -> None:
        """Exit the context manager; an error is only logged."""
        assert self._task is not None  # noqa: S101 - it was entered
        self._ended.set()
        try:
            await asyncio.wait_for(self._task, EXIT_S)
        except asyncio.TimeoutError:  # noqa: UP041 - Python 3.9
            logger.warning(CLOSING_FAILED, f"it took more than {EXIT_S:g} s")
        except Exception as error:  # noqa: BLE001 - a failing clean-up must not lose a response
            logger.warning(CLOSING_FAILED, describe(error))

    async def _hold(self, entered: asyncio.Future[Any]) -> None:
        async with self._manager as agent:
            entered.set_result(agent)
            await self._ended.wait()


def _manager_of(agent: Any) -> AbstractAsyncContextManager[Any] | None:
    """Return the context manager that an agent is, or that the agent of a generator lives in."""
    if inspect.isasyncgen(agent):
        return asynccontextmanager(lambda: agent)()
    if inspect.isgenerator(agent):
        return _in_thread(contextmanager(lambda: agent)())
    kind = type(agent)
    if hasattr(kind, "__aenter__") and hasattr(kind, "__aexit__"):
        manager: AbstractAsyncContextManager[Any] = agent
        return manager
    if hasattr(kind, "__enter__") and hasattr(kind, "__exit__"):
        return _in_thread(agent)
    return None


@asynccontextmanager
async def _in_thread(manager: Any) -> AsyncIterator[Any]:
    """Enter and exit a context manager that may block."""
    agent = await call_user_function(manager.__enter__, manager.__enter__)
    try:
        yield agent
    finally:
        leave = partial(manager.__exit__, None, None, None)
        await call_user_function(leave, manager.__exit__)


async def call_factory(factory: Callable[[], Any]) -> Any:
    """Return what a class or a function makes. Raises UnusableAgent if that is nothing."""
    made = await call_user_function(factory, factory)
    if made is None:
        raise UnusableAgent(
            f"{factory.__name__}() returned nothing; let {factory.__name__} return the agent"
        )
    return made


async def open_agent(agent: Any, recognize: Callable[[Any], HostedAgent]) -> HostedAgent:
    """Return an agent as what it is, entered if it is a context manager.

    Raises what the context manager and `recognize` raise.
    """
    user = _object_to_enter(agent)
    manager = _manager_of(user)
    if manager is None:
        return recognize(agent)
    lifespan = Lifespan(manager)
    entered = await lifespan.enter()
    if entered is None and _is_generator(user):
        await lifespan.exit()
        raise UnusableAgent("the context manager yields nothing; let it yield the agent")
    try:
        hosted = recognize(agent if entered is None or entered is user else entered)
    except BaseException:
        await lifespan.exit()
        raise
    hosted.lifespan = lifespan
    return hosted


def _object_to_enter(agent: Any) -> Any:
    """Return the object of the user that is entered if it is a context manager; None for none."""
    if sys.version_info < (3, 10):  # noqa: UP036 - the user's Python; no framework is for 3.9
        return agent
    from holodeck.lib.backends import frameworks  # noqa: PLC0415

    framework = frameworks.find_framework(agent)
    enters = framework is None or framework.enters_agents
    return frameworks.base.split_run(agent)[0] if enters else None


def _is_generator(value: Any) -> bool:
    """Whether it is a generator, or what a decorator of contextlib makes of its function."""
    is_decorated = type(value).__module__ == "contextlib"
    return is_decorated or inspect.isasyncgen(value) or inspect.isgenerator(value)


def recognize(agent: Any, read: ReadAnswer, *, tools_run_no_agents: bool = False) -> HostedAgent:
    """Return the agent as what it is. Raises UnusableAgent for an unknown shape, FrameworkError."""
    if sys.version_info >= (3, 10):  # noqa: UP036 - the user's Python; no framework is for 3.9
        from holodeck.lib.backends import frameworks  # noqa: PLC0415

        adapter, framework = frameworks.adapt(agent), frameworks.find_framework(agent)
        if adapter is not None and framework is not None:
            user = frameworks.base.split_run(agent)[0]
            kind = f"{type(user).__name__} of {framework.name}"
            hosted = FrameworkAgent(adapter, kind, read, tools_run_no_agents=tools_run_no_agents)
            name = getattr(user, "name", None)
            hosted.name = name if isinstance(name, str) and name.strip() else None
            return hosted
        unadapted = frameworks.find_unadapted(agent, METHODS)
        if unadapted is not None:
            raise UnusableAgent(unadapted.advice(agent))
    return FunctionAgent(agent, read)


class Host:
    """Holds the agent that all conversations share, or makes one for each of them.

    Args:
        agent: The agent, or the first one that was made.
        factory: Makes the agent of each conversation; None if all share one.
    """

    def __init__(
        self, agent: HostedAgent, factory: Callable[[], Awaitable[HostedAgent]] | None
    ) -> None:
        self.agent = agent
        self.factory = factory
        self._spare: HostedAgent | None = agent
        """The agent that is not part of a conversation that closes it."""

    @property
    def shares_nothing(self) -> bool:
        """Whether conversations share no object and wait without blocking each other."""
        is_shared_object = self.factory is None and self.agent.is_stateful_object
        return self.agent.is_concurrent and not is_shared_object

    async def open(
        self, messages: Messages, context: CaseContext | None = None
    ) -> AgentConversation:
        """Return a new conversation, after the earlier messages."""
        if self.factory is None:
            return await self.agent.open(messages, context)
        agent, self._spare = self._spare, None
        if agent is None:
            agent = await self.factory()
        try:
            conversation = await agent.open(messages, context)
        except BaseException:
            await agent.close()
            raise
        conversation.agent = agent
        return conversation

    async def close(self) -> None:
        """Close the agent, unless a conversation does."""
        agent, self._spare = self._spare, None
        if agent is not None:
            await agent.close()


def makes_agents(value: Any) -> bool:
    """Whether a value is a class, or a function without parameters; these make agents."""
    return inspect.isclass(value) or is_factory(value)
