"""Agents that are the user's Python code: `backend: "module:attribute"`."""

import inspect
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from holodeck.errors import BackendInitError, BackendSessionError, ConfigError, HoloDeckError
from holodeck.lib.backends.base import (
    NO_CASE_CONTEXT_PARAMETER,
    AgentBackend,
    AgentSession,
    BackendInContext,
    CaseContext,
    ExecutionResult,
    Message,
    Method,
)
from holodeck.lib.backends.description import AgentDescription
from holodeck.lib.backends.frameworks import FRAMEWORKS, adapt, find_framework
from holodeck.lib.backends.frameworks.base import FrameworkError
from holodeck.lib.backends.python_agents import (
    LOCATION,
    BackendAgent,
    FunctionAgent,
    LoadedAgent,
    OwningSession,
    recognize,
)
from holodeck.lib.llm.limits import call_limits, call_with_limit
from holodeck.lib.processes.threads import call_user_function
from holodeck.lib.support.garbage import collector_paused
from holodeck.lib.support.signatures import is_factory
from holodeck.lib.user_code.raised import with_location
from holodeck.lib.user_code.registry import load_attribute, load_module
from holodeck.models.backend import Scope
from holodeck.models.config import ExecutionConfig

SCOPE = f"{LOCATION}.scope"


class CallableBackend:
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
        base_dir: Path | None = None,
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
        self._make: Callable[[], Any] | None = None
        """Makes the agent of each conversation; None if all share one."""
        self._shared: LoadedAgent | None = None
        self._spare: LoadedAgent | None = None
        """The first agent that was made, for the first conversation."""
        self._known: LoadedAgent | None = None
        """An agent to read properties from, which are the same for all."""
        self.shares_nothing = False
        """Whether cases share no object and wait without blocking, so that several may run
        concurrently by default: a coroutine function, a class whose method is one, or an agent of
        a framework. Known once initialized."""

    async def initialize(self) -> None:
        """Import the agent, and make it if a class or a function does. Raises BackendInitError."""
        if self._known is not None:
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
        return await self.ask(message, context or ())

    async def create_session(self, context: Sequence[Message] | None = None) -> AgentSession:
        """Return a conversation; it passes earlier messages as context. Raises BackendError."""
        return await self.open(context or ())

    def in_context(self, context: CaseContext) -> AgentBackend:
        """Return the backend for a case with a context.

        Raises ConfigError if the agent takes none.
        """
        if self._known is not None and not self._known.takes_case_context:
            raise ConfigError(LOCATION, NO_CASE_CONTEXT_PARAMETER)
        return BackendInContext(self, context)

    async def ask(
        self, message: str, context: Sequence[Message], case_context: CaseContext | None = None
    ) -> ExecutionResult:
        """Return the response to one message of a case. Raises BackendError."""
        await self.initialize()
        if self._shared is not None:
            return await self._shared.ask(message, context, case_context, self._timeout)
        agent = await self._take()
        try:
            return await agent.ask(message, context, case_context, self._timeout)
        finally:
            await agent.close()

    async def open(
        self, context: Sequence[Message], case_context: CaseContext | None = None
    ) -> AgentSession:
        """Return a conversation of a case, after the earlier messages. Raises BackendError."""
        await self.initialize()
        if self._shared is not None:
            return await self._shared.open(context, case_context, self._timeout)
        agent = await self._take()
        try:
            session = await agent.open(context, case_context, self._timeout)
        except BaseException:
            await agent.close()
            raise
        return OwningSession(session, agent)

    def history_problem(self, method: Method) -> str | None:
        """Return why the agent cannot be given earlier messages; None if it can.

        Known once initialized.
        """
        return None if self._known is None else self._known.history_problem(method)

    def describe(self) -> AgentDescription:
        """Return what the agent is. Known once initialized."""
        assert self._known is not None  # noqa: S101 - as the docstring says
        kind = self._known.kind
        if inspect.isclass(self._make) and isinstance(self._known, FunctionAgent):
            kind = f"class {self._make.__name__}"
        return AgentDescription(kind, self._known.tools, self.history_problem("create_session"))

    async def teardown(self) -> None:
        """Close the agent; the next call makes a new one."""
        agent = self._shared or self._spare
        self._make = self._shared = self._spare = self._known = None
        if agent is not None:
            await agent.close()

    async def _load(self) -> None:
        value = self._target
        if isinstance(value, str):
            with collector_paused():  # it may import a large framework
                value = load_attribute(value, self._base_dir, location=LOCATION)
        problem = problem_with(value)
        if problem is not None:
            raise ConfigError(LOCATION, problem)
        makes_agents = inspect.isclass(value) or is_factory(value)
        if self._scope is not None and not makes_agents:
            raise ConfigError(
                SCOPE,
                f"only a class or a function without parameters has a scope; a"
                f" {type(value).__name__} exists once: name a function that returns the agent, or"
                " remove 'scope'",
            )
        agent = await call_user_function(value, value) if makes_agents else value  # type: ignore[arg-type]
        loaded = self._recognize(agent)
        if isinstance(loaded, BackendAgent):  # it isolates its sessions itself
            assert isinstance(agent, AgentBackend)  # noqa: S101 - it was recognized as one
            await agent.initialize()
        self._known = loaded
        if makes_agents and self._scope != "run" and not isinstance(loaded, BackendAgent):
            self._make, self._spare = value, loaded  # type: ignore[assignment]
            self.shares_nothing = loaded.is_concurrent
            return
        self._shared = loaded
        is_object = isinstance(loaded, FunctionAgent) and not inspect.isfunction(agent)
        self.shares_nothing = loaded.is_concurrent and not is_object

    def _recognize(self, agent: object) -> LoadedAgent:
        """Return the agent. Raises ConfigError, which says what would fit."""
        try:
            return recognize(agent, tools_run_no_agents=self._tools_run_no_agents)
        except ConfigError as error:
            hint = what_fits(agent, self._target, self._base_dir)
            raise ConfigError(LOCATION, f"{error.message}{hint}") from error

    async def _take(self) -> LoadedAgent:
        """Return the agent for one conversation. Raises BackendSessionError."""
        spare, self._spare = self._spare, None
        if spare is not None:
            return spare
        return await call_with_limit(self._made, self._timeout)

    async def _made(self) -> LoadedAgent:
        assert self._make is not None  # noqa: S101 - set unless there is a shared agent
        try:
            return self._recognize(await call_user_function(self._make, self._make))
        except HoloDeckError:
            raise
        except (Exception, SystemExit) as error:
            raise BackendSessionError(_not_created(error)) from error


def _not_created(error: BaseException) -> str:
    return f"the agent cannot be created: {with_location(error)}"


MAX_SHOWN = 3


def problem_with(value: object) -> str | None:
    """Return why a value cannot be an agent, nor make one, before anything of it is called."""
    if inspect.iscoroutine(value):
        value.close()
        return (
            f"found a coroutine object: {value.__name__}() was called without 'await'; name the"
            " function itself, without the brackets"
        )
    is_generator = inspect.isasyncgenfunction(value) or inspect.isgeneratorfunction(value)
    if is_generator and find_framework(value) is None:
        name = getattr(value, "__name__", type(value).__name__)
        return (
            f"{name}() is a generator function, as it contains 'yield'; an agent returns"
            " its answer, and a function without parameters returns the agent"
        )
    return _problem_with_class(value) if inspect.isclass(value) else None


def _problem_with_class(kind: type) -> str | None:
    """Return why a class of a framework itself is no agent; one of the user's may be one."""
    framework, name = find_framework(kind), kind.__name__
    if framework is None or kind.__module__.partition(".")[0] != framework.package:
        return None
    if not any(name in one.objects for one in framework.adapters()):
        return None
    return (
        f"{name} is a class of {framework.name} itself; create an agent with it in a module of"
        f" yours, and name that: 'agent = {name}(…)', say"
    )


def what_fits(agent: object, target: object, base_dir: Path | None) -> str:
    """Return what is accepted of the framework, if it is one, and what its module has to offer."""
    framework = find_framework(agent)
    if framework is None:
        names = dict.fromkeys(one.name for one in FRAMEWORKS)
        accepted = f"; agents of frameworks are taken, too: {', '.join(names)}"
    else:
        objects = [name for adapter in framework.adapters() for name in adapter.objects]
        accepted = f"; of {framework.name}, {', '.join(objects)} are taken"
    if not isinstance(target, str):
        return accepted
    module_name, _, _ = target.partition(":")
    with suppress(ConfigError):
        found = _agents_in(load_module(module_name, base_dir, location=""))
        if found:
            return f"{accepted}; module {module_name!r} has {', '.join(found[:MAX_SHOWN])}"
    return accepted


def _agents_in(module: types.ModuleType) -> list[str]:
    """Return the agents that a module defines, those of frameworks and backends first."""
    public = {name: one for name, one in vars(module).items() if not name.startswith("_")}
    objects = [
        f"{name!r} ({type(one).__name__})"
        for name, one in public.items()
        if not inspect.isclass(one) and (isinstance(one, AgentBackend) or _is_of_framework(one))
    ]
    functions = [
        f"{name!r} (function)"
        for name, one in public.items()
        if inspect.isfunction(one)
        and one.__module__ == module.__name__
        and not (inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one))
    ]
    return [*objects, *functions]


def _is_of_framework(value: object) -> bool:
    with suppress(Exception):  # an adapter may refuse it
        return find_framework(value) is not None and adapt(value) is not None
    return False
