"""What the adapters of agent frameworks have in common.

The modules of this package import nothing of holodeck outside of it, and a framework only inside
functions: the worker of a process backend loads them in environments without holodeck.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from holodeck.lib.backends.base import Message

Capability = Literal[
    "tool calls", "tool results", "tool errors", "token usage", "agents", "tools", "streaming"
]
"""What an adapter can read from its framework: `agents` are the names of those that spoke, `tools`
the names of what could be called, and `streaming` means that a response comes in pieces."""


class FrameworkError(Exception):
    """Why an agent cannot be tested, or its turn cannot be completed, and what to do about it."""


def split_run(value: object) -> tuple[object, dict[str, Any]]:
    """Return the agent, and the arguments of each run that the user chose.

    `partial(agent.run, deps=Deps())` is the way to choose some, or `partial(Runner.run, agent, …)`
    where a class runs the agents; `(agent, thread)` chooses the thread. An agent alone has none.
    """
    options: dict[str, Any] = {}
    run: Any = value
    if isinstance(value, tuple) and len(value) == 2 and _is_thread(value[1]):
        return value[0], {"thread": value[1]}
    if isinstance(run, partial):
        if len(run.args) == 1 and inspect.isclass(getattr(run.func, "__self__", None)):
            return run.args[0], run.keywords
        if not run.args:
            run, options = run.func, run.keywords
    if inspect.ismethod(run) and _is_run(run):
        return run.__self__, options
    return value, {}


def _is_run(method: Any) -> bool:
    """Whether an agent answers with this method, which may yield its messages."""
    name = method.__name__
    if name in {"invoke", "invoke_stream"}:
        return inspect.isasyncgenfunction(method)
    return name in {"run", "ainvoke", "get_response"}


def _is_thread(value: object) -> bool:
    return any(base.__name__ == "AgentThread" for base in type(value).__mro__)


async def per_conversation(value: Any) -> Any:
    """Return what a function or a class that the user named makes, or another value itself."""
    if inspect.isroutine(value) or inspect.isclass(value):
        value = value()
    return await value if inspect.isawaitable(value) else value


@dataclass
class TurnRecord:
    """What a framework reported of one turn, as an agent returns it (see `parse_result`)."""

    response: Any = ""
    """Text, or the structured answer."""
    tool_calls: list[dict[str, Any]] | None = field(default_factory=list)
    """Each with `name`, `arguments`, `call_id` and perhaps `agent`; None if unknown."""
    tool_calls_problem: str | None = None
    """Why there may be more calls than `tool_calls`."""
    tool_results: list[dict[str, Any]] = field(default_factory=list)
    """Each with `name`, `call_id`, `result` and perhaps `is_error`."""
    usage: dict[str, int] | None = None
    """`prompt_tokens` and `completion_tokens` of all requests; None if one of them is unknown."""
    agents: list[str] | None = None
    """Names of the agents that spoke, in order, consecutive repeats collapsed; None if unknown."""
    _has_unknown_usage: bool = False

    def add_agent(self, name: str | None) -> None:
        """Note that an agent spoke."""
        if name and (not self.agents or self.agents[-1] != name):
            self.agents = [*(self.agents or ()), name]

    def add_call(
        self,
        name: str,
        arguments: str | Mapping[str, Any] | None,
        call_id: str | None = None,
        agent: str | None = None,
    ) -> None:
        """Note a tool call that the model requested, its arguments as JSON text or as a mapping."""
        calls = self.tool_calls = self.tool_calls or []
        call_id = call_id or f"call_{len(calls) + 1}"
        call = {"name": name, "arguments": arguments, "call_id": call_id}
        calls.append({**call, "agent": agent} if agent else call)

    def add_agent_tool(self, name: str) -> None:
        """Note that an agent was called as a tool, whose own tool calls are not seen."""
        self.tool_calls_problem = (
            f"those of {name!r} are not seen, which is an agent used as a tool"
        )

    def add_result(
        self, call_id: str | None, result: Any, *, is_error: bool = False, name: str | None = None
    ) -> None:
        """Note the result of the call with this id; without one, of the oldest open call.

        A result of a call that was not noted, such as one of an earlier turn, is left out.
        """
        answered = {one["call_id"] for one in self.tool_results}
        for call in self.tool_calls or ():
            is_open = call_id is None and name in {None, call["name"]}
            if call["call_id"] in answered or not (is_open or call["call_id"] == call_id):
                continue
            row = {"name": call["name"], "call_id": call["call_id"], "result": result}
            self.tool_results.append({**row, "is_error": True} if is_error else row)
            return

    def add_usage(self, prompt_tokens: int | None, completion_tokens: int | None) -> None:
        """Add the tokens of a request; one of unknown usage makes the sum unknown."""
        if prompt_tokens is None or completion_tokens is None or self._has_unknown_usage:
            self.usage, self._has_unknown_usage = None, True
            return
        before = self.usage or {"prompt_tokens": 0, "completion_tokens": 0}
        self.usage = {
            "prompt_tokens": before["prompt_tokens"] + prompt_tokens,
            "completion_tokens": before["completion_tokens"] + completion_tokens,
        }


class FrameworkSession(ABC):
    """One conversation with an agent of a framework."""

    turn: TurnRecord
    """What is known of the latest turn; readable after it failed, too."""

    @abstractmethod
    async def send(self, message: str) -> TurnRecord:
        """Return what happened in the agent's turn; the conversation continues from there.

        Exceptions of the framework escape. After one, or after a cancellation, the conversation is
        as it was before the message.
        """

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        """Yield the agent's response in pieces; in one, unless the framework streams."""
        yield str((await self.send(message)).response)

    @abstractmethod
    def remember(self, messages: Sequence["Message"]) -> None:
        """Append messages to the conversation that the agent did not take part in."""

    async def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what the conversation holds; may be called twice."""


class FrameworkAdapter(ABC):
    """An agent of a framework; the object stays as the user made it.

    Its conversations share nothing that it could help.
    """

    objects: ClassVar[tuple[str, ...]]
    """Names of the classes whose objects it adapts, as the framework's users write them."""
    reads: ClassVar[frozenset[Capability]]
    """What its conversations report; anything else is unknown."""
    is_concurrent = True
    """Whether several conversations can take place concurrently."""

    @abstractmethod
    async def open(self, context: Sequence["Message"]) -> FrameworkSession:
        """Return a new conversation, after the earlier messages of `context`."""

    def tools(self) -> list[str] | None:
        """Return the names of the tools that the agent can call; None if unknown."""
        return None

    async def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what the adapter itself opened; may be called twice."""
