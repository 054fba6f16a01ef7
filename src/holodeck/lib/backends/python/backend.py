"""Agents that are the user's Python code, in this process: `backend: "module:attribute"`."""

import inspect
import logging
import re
import types
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from holodeck.errors import (
    BackendError,
    BackendInitError,
    BackendSessionError,
    BackendTimeoutError,
    ConfigError,
    HoloDeckError,
)
from holodeck.lib.backends import base
from holodeck.lib.backends.base import (
    NO_CASE_CONTEXT_PARAMETER,
    NO_CONTEXT_PARAMETER,
    NO_SEAL,
    AgentBackend,
    AgentDescription,
    AgentSession,
    Capabilities,
    ExecutionResult,
    InContext,
    Message,
    backend_in_context,
    capabilities_of,
    open_session,
    without_history,
)
from holodeck.lib.backends.frameworks import FRAMEWORKS, adapt, find_framework, find_unadapted
from holodeck.lib.backends.frameworks.base import FrameworkError, pieces_of
from holodeck.lib.backends.parsing import complete_result, parse_result
from holodeck.lib.backends.python.host import (
    ASYNC_CONCURRENCY,
    AgentConversation,
    FunctionAgent,
    Host,
    HostedAgent,
    call_factory,
    makes_agents,
    open_agent,
    recognize,
)
from holodeck.lib.llm import provider_errors
from holodeck.lib.llm.errors import error_chain
from holodeck.lib.llm.limits import call_limits, call_with_limit, stream_with_limit
from holodeck.lib.processes.process_exit import collector_paused
from holodeck.lib.support.signatures import METHODS, UnusableAgent
from holodeck.lib.support.text import describe
from holodeck.lib.user_code.code_root import CodeFolders
from holodeck.lib.user_code.raised import with_location
from holodeck.lib.user_code.registry import load_attribute, load_module
from holodeck.models.backend import Scope
from holodeck.models.config import ExecutionConfig

logger = logging.getLogger(__name__)

LOCATION = "backend"
"""The key of the agent.yaml that messages name."""
SCOPE = f"{LOCATION}.scope"
MAX_DEPTH = 4
"""How deep the attributes of a shared object are searched for messages of earlier cases."""
MAX_VALUES = 1_000
MAX_AGENTS = 3
"""How many agents of a module a message names."""
_LOOP = re.compile(r"[Ee]vent loop is closed|(different|another) (event )?loop")


class CallableBackend(InContext, AgentBackend):
    """Reaches an agent by calling it.

    A class is instantiated, and a function without parameters is called, for every conversation,
    so that cases share no state; with the scope `run`, once. A function and an object are shared by
    all cases. An object that implements AgentBackend is used as it is; an agent of a framework,
    through its adapter. Calls are not retried: only the user knows whether that would do harm.

    Args:
        target: `module:attribute`, or the agent itself.
        base_dir: Where modules are looked for first.
        execution: Time limits; their defaults if not given.
        scope: How long an agent lives that a class or a function makes: for one `case`, which is
            the default, or for the `run`.
        tools_run_no_agents: Whether no tool of the agent runs an agent of its own, so that tool
            calls are known even where its framework is not traced.
    """

    def __init__(
        self,
        target: object,
        base_dir: CodeFolders | None = None,
        execution: ExecutionConfig | None = None,
        scope: Scope | None = None,
        *,
        tools_run_no_agents: bool = False,
    ) -> None:
        self._target = target
        self._tools_run_no_agents = tools_run_no_agents
        self._base_dir = base_dir
        self._timeout = call_limits(execution).timeout
        self._scope = scope
        self._backend: AgentBackend | None = None
        """The agent, if it implements AgentBackend."""
        self._host: Host | None = None
        """Holds any other agent."""
        self._factory: object = None
        """What makes the agent of each conversation; None if all share one."""
        self._shared_state: SharedState | None = None

    async def initialize(self) -> None:
        """Import the agent, and make it if a class or a function does. Raises BackendInitError."""
        if self._backend is not None or self._host is not None:
            return
        try:
            await self._load()
        except HoloDeckError:
            raise
        except FrameworkError as error:
            raise BackendInitError(str(error)) from error
        except (Exception, SystemExit) as error:
            raise BackendInitError(_not_created(error)) from error

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        await self.initialize()
        if self._backend is None:
            return await super().invoke_once(message, context)
        backend = backend_in_context(self._backend, self.case_context, LOCATION)
        call = partial(backend.invoke_once, message, context or ())
        return await call_with_limit(call, self._timeout)

    async def create_session(self, context: Sequence[Message] | None = None) -> AgentSession:
        """Return a conversation; it passes earlier messages as context. Raises BackendError."""
        await self.initialize()
        if self._backend is not None:
            backend = backend_in_context(self._backend, self.case_context, LOCATION)
            session = await call_with_limit(partial(open_session, backend, context), self._timeout)
            return LimitedSession(session, self._timeout)
        host = self._host
        assert host is not None  # noqa: S101 - it is initialized
        open_conversation = partial(host.open, context or (), self.case_context)
        conversation = await call_with_limit(open_conversation, self._timeout)
        return PythonSession(conversation, host.agent, self._timeout, self._shared_state)

    @property
    def capabilities(self) -> Capabilities:
        """What the agent can do; known once initialized.

        Several cases run at a time by default if they share no object and wait without blocking: a
        coroutine function, a class whose method is one, or an agent of a framework.
        """
        if self._backend is not None:
            inner = capabilities_of(self._backend)
            problem = inner.context_problem and NO_CASE_CONTEXT_PARAMETER
            concurrency = inner.concurrency or 1
            return replace(
                inner, concurrency=concurrency, runs_user_code=True, context_problem=problem
            )
        if self._host is None:
            return Capabilities(
                1, runs_user_code=True, context_problem=None, seal_problem=None, stub_problem=None
            )
        agent = self._host.agent
        return Capabilities(
            ASYNC_CONCURRENCY if self._host.shares_nothing else 1,
            runs_user_code=True,
            history_problems=without_history(None if agent.takes_history else NO_CONTEXT_PARAMETER),
            context_problem=None if agent.takes_context else NO_CASE_CONTEXT_PARAMETER,
            answers_approvals=agent.answers_approvals,
            seal_problem=None if agent.takes_stubs else NO_SEAL,
            stub_problem=None,
        )

    def describe(self) -> AgentDescription:
        """Return what the agent is. Known once initialized."""
        can = self.capabilities
        problem = can.history_problems.get("create_session")
        if self._host is None:
            kind = f"AgentBackend {type(self._backend).__name__}"
            return AgentDescription(kind, None, problem, can.answers_approvals)
        agent, kind = self._host.agent, self._host.agent.kind
        if isinstance(agent, FunctionAgent) and inspect.isclass(self._factory):
            kind = f"class {self._factory.__name__}"
        known = (kind, agent.tools, problem, can.answers_approvals, agent.name)
        return AgentDescription(*known, can.seal_problem, agent.required_arguments())

    async def teardown(self) -> None:
        """Close the agent; the next call makes a new one."""
        backend, host = self._backend, self._host
        self._backend = self._host = self._shared_state = None
        if backend is not None:
            await backend.teardown()
        if host is not None:
            await host.close()

    async def _load(self) -> None:
        value = self._target
        if isinstance(value, str):
            with collector_paused():  # it may import a large framework
                value = load_attribute(value, self._base_dir, location=LOCATION)
        problem = _problem_with(value)
        if problem is not None:
            raise ConfigError(LOCATION, problem)
        is_made = makes_agents(value)
        if self._scope is not None and not is_made:
            raise ConfigError(
                SCOPE,
                f"only a class or a function without parameters has a scope; a"
                f" {type(value).__name__} exists once: name a function that returns the agent, or"
                " remove 'scope'",
            )
        with self._explaining(None):
            agent = await call_factory(value) if is_made else value  # type: ignore[arg-type]
        if isinstance(agent, AgentBackend):  # it isolates its sessions itself
            await agent.initialize()
            self._backend = agent
            return
        hosted = await self._open_agent(agent)
        has_factory = is_made and self._scope != "run"
        self._factory = value if has_factory else None
        self._host = Host(hosted, partial(self._make, value) if has_factory else None)  # type: ignore[arg-type]
        if isinstance(hosted, FunctionAgent) and not inspect.isroutine(hosted.agent):
            self._shared_state = None if has_factory else SharedState(hosted.agent)

    async def _open_agent(self, agent: object) -> HostedAgent:
        """Return the agent, entered if it is a context manager.

        Raises ConfigError, which says what would fit.
        """
        as_agent = partial(recognize, read=_read, tools_run_no_agents=self._tools_run_no_agents)
        with self._explaining(agent):
            if agent is self._target:  # an object of the caller, who enters and exits it
                return as_agent(agent)
            return await open_agent(agent, as_agent)

    @contextmanager
    def _explaining(self, agent: object) -> Iterator[None]:
        """Say what would fit where an agent does not."""
        try:
            yield
        except UnusableAgent as error:
            hint = _what_fits(agent, self._target, self._base_dir)
            raise ConfigError(LOCATION, f"{error}{hint}") from error

    async def _make(self, factory: Callable[[], Any]) -> HostedAgent:
        try:
            with self._explaining(None):
                made = await call_factory(factory)
            return await self._open_agent(made)
        except HoloDeckError:
            raise
        except (Exception, SystemExit) as error:
            raise BackendSessionError(_not_created(error)) from error


def _not_created(error: BaseException) -> str:
    return f"the agent cannot be created: {with_location(error)}"


def _read(answer: Any) -> tuple[ExecutionResult, str]:
    result = parse_result(answer)
    return result, result.response


class PythonSession:
    """A conversation with a hosted agent, with time limits.

    Failures of an agent of a framework carry what was seen until then.

    Args:
        conversation: The conversation.
        agent: The agent, or another one that is made like it.
        limit_s: Seconds for each turn; None for no limit.
        shared_state: Notices that the agent keeps messages of other cases; None if it cannot.
    """

    def __init__(
        self,
        conversation: AgentConversation,
        agent: HostedAgent,
        limit_s: float | None,
        shared_state: "SharedState | None",
    ) -> None:
        self._conversation = conversation
        self._agent = agent
        self._limit_s = limit_s
        self._shared_state = shared_state
        self._is_closed = False

    async def send(self, message: str) -> ExecutionResult:
        if self._is_closed:
            raise BackendSessionError("the conversation is closed")
        state, self._shared_state = self._shared_state, None
        if state is not None:
            state.begin(message)
        try:
            return await call_with_limit(partial(self._send, message), self._limit_s)
        except BackendTimeoutError as error:
            error.seen = self._unfinished_result()
            raise

    def send_streaming(self, message: str) -> AsyncIterator[str]:
        """Yield the agent's response in pieces, each within the limit. Raises BackendError."""

        async def send(on_piece: Callable[[str], None]) -> str:
            return (await self._send(message, on_piece)).response

        return stream_with_limit(pieces_of(send), self._limit_s)

    def remember(self, messages: Sequence[Message]) -> None:
        """Append messages to the history. Raises ConfigError if the agent takes no context."""
        if not self._agent.takes_history:
            raise ConfigError(LOCATION, NO_CONTEXT_PARAMETER)
        self._conversation.remember(messages)

    async def close(self) -> None:
        self._is_closed = True
        await self._conversation.close()

    async def _send(
        self, message: str, on_piece: Callable[[str], None] | None = None
    ) -> ExecutionResult:
        try:
            return self._completed(await self._conversation.send(message, on_piece))
        except BackendError:
            raise
        except Exception as error:
            seen = self._unfinished_result()
            if seen is None:
                raise
            refusal = provider_errors.refusal_in(error)
            raise BackendSessionError(_describe(error), seen=seen, refusal=refusal) from error

    def _unfinished_result(self) -> ExecutionResult | None:
        answer = self._conversation.unfinished_answer()
        return None if answer is None else self._completed(answer)

    def _completed(self, result: ExecutionResult) -> ExecutionResult:
        if not isinstance(self._agent, FunctionAgent):
            complete_result(result, self._agent.tools, self._agent.reads_tool_errors)
        return result


def _describe(error: Exception) -> str:
    """Return what happened, and what to do if the agent's client is bound to another loop."""
    if isinstance(error, FrameworkError):
        return str(error)
    is_of_provider = provider_errors.is_provider_error(error)
    message = provider_errors.describe(error) if is_of_provider else describe(error)
    causes = [cause for cause in error_chain(error) if isinstance(cause, RuntimeError)]
    if any(_LOOP.search(str(cause)) for cause in causes):
        return (
            "the agent, or its client, was used on another event loop; create it in a function"
            f" without parameters, and name that function: each run then has its own ({message})"
        )
    return message


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

    def remember(self, messages: Sequence[Message]) -> None:
        """Append messages to the history. Raises ConfigError if the session takes none."""
        base.remember(self._session, messages)

    async def close(self) -> None:
        await self._session.close()


def _problem_with(value: object) -> str | None:
    """Return why a value cannot be an agent, nor make one, before anything of it is called."""
    if inspect.iscoroutine(value):
        value.close()
        return (
            f"found a coroutine object: {value.__name__}() was called without 'await'; name the"
            " function itself, without the brackets"
        )
    return _problem_with_class(value) if inspect.isclass(value) else None


def _problem_with_class(kind: type) -> str | None:
    """Return why a class of a framework itself is no agent; one of the user's may be one."""
    framework, name = find_framework(kind), kind.__name__
    if framework is None or kind.__module__.partition(".")[0] != framework.package:
        return None
    if not any(name in adapter.objects for adapter in framework.adapters()):
        return None
    return (
        f"{name} is a class of {framework.name} itself; create an agent with it in a module of"
        f" yours, and name that: 'agent = {name}(…)', say"
    )


def _what_fits(agent: object, target: object, base_dir: CodeFolders | None) -> str:
    """Return what is accepted of the framework, if it is one, and what its module has to offer."""
    if agent is None:  # the module has what was named; it makes nothing
        return ""
    if find_unadapted(agent, METHODS) is not None:  # the error has the function to write
        return ""
    framework = find_framework(agent)
    if framework is None:
        names = dict.fromkeys(framework.name for framework in FRAMEWORKS)
        accepted = f"; agents of frameworks are taken, too: {', '.join(names)}"
    else:
        objects = [name for adapter in framework.adapters() for name in adapter.objects]
        accepted = f"; of {framework.name}, {', '.join(objects)} are taken"
    if not isinstance(target, str):
        return accepted
    module_name, _, _ = target.partition(":")
    with suppress(ConfigError):
        agents = _agents_in(load_module(module_name, base_dir, location=""))
        if agents:
            return f"{accepted}; module {module_name!r} has {', '.join(agents[:MAX_AGENTS])}"
    return accepted


def _agents_in(module: types.ModuleType) -> list[str]:
    """Return the agents that a module defines, those of frameworks and backends first."""
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    objects = [
        f"{name!r} ({type(value).__name__})"
        for name, value in public.items()
        if not inspect.isclass(value)
        and (isinstance(value, AgentBackend) or _is_of_framework(value))
    ]
    functions = [
        f"{name!r} (function)"
        for name, value in public.items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    return [*objects, *functions]


def _is_of_framework(value: object) -> bool:
    with suppress(Exception):  # an adapter may refuse it
        return find_framework(value) is not None and adapt(value) is not None
    return False


class SharedState:
    """Looks for the first message of an earlier conversation in the attributes of an object."""

    def __init__(self, agent: object) -> None:
        self._agent = agent
        self._earlier: str | None = None
        """The first message of an earlier conversation, which the object did not hold before."""
        self._has_warned = False

    def begin(self, message: str) -> None:
        """Note that a conversation begins; warn if the object still holds an earlier one."""
        if self._has_warned:
            return
        if self._earlier is None:
            self._earlier = None if place_of(self._agent, message) else message
            return
        place = place_of(self._agent, self._earlier)
        if place is not None:
            self._has_warned = True
            logger.warning(
                "the agent is shared by all test cases and keeps their messages: %r of an earlier"
                " case is in %s.%s; name its class, or a function without parameters that creates"
                " it, so that each case has its own",
                self._earlier,
                type(self._agent).__name__,
                place,
            )


def place_of(agent: object, text: str) -> str | None:
    """Return where the attributes of an object hold a text, such as `thread.messages[0]`."""
    waiting = [(name, value, 1) for name, value in _parts(agent)]
    for place, value, depth in waiting:  # grows meanwhile
        if isinstance(value, str):
            if value == text:
                return place.removeprefix(".")
        elif depth < MAX_DEPTH and len(waiting) < MAX_VALUES:
            waiting += [(f"{place}{name}", part, depth + 1) for name, part in _parts(value)]
    return None


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):  # another mapping may read a file or a database
        yield from ((f"[{key!r}]", part) for key, part in list(value.items())[:MAX_VALUES])
    elif isinstance(value, list | tuple):
        yield from ((f"[{index}]", part) for index, part in enumerate(value[:MAX_VALUES]))
    elif hasattr(value, "__dict__"):
        yield from ((f".{name}", part) for name, part in list(vars(value).items())[:MAX_VALUES])
