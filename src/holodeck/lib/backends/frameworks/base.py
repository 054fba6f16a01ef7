"""What the adapters of agent frameworks have in common.

The modules of this package import little of holodeck outside of it, and a framework only inside
functions: the worker of a process backend loads them in environments without holodeck.
"""

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from holodeck.lib.backends.frameworks.tracing import watch_turn
from holodeck.lib.backends.frameworks.turn_trace import OtherWork, TurnTrace

if TYPE_CHECKING:
    from holodeck.lib.backends.base import Message

Capability = Literal[
    "tool calls", "tool results", "tool errors", "token usage", "agents", "tools", "streaming"
]
"""What an adapter can read from its framework: `agents` are the names of those that spoke, `tools`
the names of what could be called, and `streaming` means that a response comes in pieces."""
ALL: frozenset[Capability] = frozenset(get_args(Capability))


class FrameworkError(Exception):
    """Why an agent cannot be tested, or its turn cannot be completed, and what to do about it."""


def split_run(value: object) -> tuple[object, dict[str, Any]]:
    """Return the agent, and the arguments of each run that the user chose.

    `partial(agent.run, deps=Deps())` is the way to choose some, or `partial(Runner.run, agent, …)`
    where a class runs the agents; `(agent, thread)` and `(agent, session)` choose where each
    conversation begins. An agent alone has none.
    """
    options: dict[str, Any] = {}
    run: Any = value
    if isinstance(value, tuple) and len(value) == 2:
        kinds = {base.__name__ for base in type(value[1]).__mro__}
        for name in _BEGINNINGS.keys() & kinds:
            return value[0], {_BEGINNINGS[name]: value[1]}
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


_BEGINNINGS = {"AgentThread": "thread", "AgentSession": "session"}
"""The classes of frameworks with the messages before a conversation → argument of a run."""


def run_method(value: object) -> str | None:
    """Return the name of the method with which the user chose to run an agent; None without it."""
    run = value.func if isinstance(value, partial) else value
    return run.__name__ if inspect.ismethod(run) else None


def check_options(options: Mapping[str, Any], method: str, *choices: str) -> None:
    """Raise FrameworkError for arguments of a method that a user cannot choose."""
    for name in options:
        if name not in choices:
            raise FrameworkError(
                f"{name!r} cannot be chosen for {method}; write {' or '.join(choices)}"
            )


def refuse_options(options: Mapping[str, Any], *names: str) -> None:
    """Raise FrameworkError for arguments of `run` that an adapter sets."""
    for name in names:
        if name in options:
            raise FrameworkError(f"holodeck sets {name!r} of run() itself; leave it out")


def field_of(value: Any, name: str) -> Any:
    """Return a field of a mapping or an object; None without it."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


async def for_conversation(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for a conversation; a `context` that can be called is called for it."""
    context = options.get("context")
    if inspect.isroutine(context) or inspect.isclass(context):
        context = context()
    if inspect.isawaitable(context):
        context = await context
    return {**options, "context": context} if "context" in options else dict(options)


@dataclass
class TurnRecord:
    """What a framework reported of a turn, as an agent returns it (see `parse_result`)."""

    response: Any = ""
    """Text, or the structured answer."""
    tool_calls: list[dict[str, Any]] | None = field(default_factory=list)
    """Each with `name`, `arguments`, `call_id` and perhaps `agent`; None if unknown.

    What a model requests is a tool call. A transfer to another agent is one with `transfer_to`.
    """
    tool_calls_problem: str | None = None
    """Why there may be more calls than `tool_calls`."""
    ends_with_calls: bool = False
    """Whether the agent stopped after its calls, so that an empty response is no mistake."""
    tool_results: list[dict[str, Any]] = field(default_factory=list)
    """Each with `name`, `call_id`, `result` and perhaps `is_error`, `refused` or `blocked`."""
    pending_approvals: list[dict[str, Any]] = field(default_factory=list)
    """What the agent waits for a person to approve, each as a tool call."""
    usage: dict[str, int] | None = None
    """`prompt_tokens` and `completion_tokens` of all requests; None if one of them is unknown."""
    models: list[str | None] = field(default_factory=list)
    """The model that answered each request; None where it is unknown."""
    agents: list[str] | None = None
    """Names of the agents that spoke, in order, consecutive repeats collapsed; None if unknown."""
    requests: int | None = 0
    """How many requests `usage` counts; None if the framework tells only their sum."""
    requests_by_agent: Counter[str | None] = field(default_factory=Counter)
    """How many of them each agent made, where the framework tells it."""
    left_out: list[str] = field(default_factory=list)
    """Names of tools whose calls are no tool calls: they shape the answer."""
    traced_functions: list[str] = field(default_factory=list)
    """The ids of the calls with a result whose function makes a step of the trace if it runs."""
    _has_unknown_usage: bool = False
    _agent_tools: set[str] = field(default_factory=set)

    @property
    def model(self) -> str | None:
        """The model that answered all requests; None if one is unknown, or if they differ."""
        return self.models[0] if len(set(self.models)) == 1 else None

    def open_calls(self) -> list[dict[str, Any]]:
        """Return the calls without a result."""
        answered = {tool_result["call_id"] for tool_result in self.tool_results}
        return [call for call in self.tool_calls or () if call["call_id"] not in answered]

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

    def add_approval(
        self, name: str, arguments: str | Mapping[str, Any] | None, call_id: str | None
    ) -> None:
        """Note a tool call that waits for a person to approve it."""
        pending = {"name": name, "arguments": arguments, "call_id": call_id}
        self.pending_approvals.append(pending)

    def add_transfer(self, call_id: str | None, agent: str) -> None:
        """Note that the call with this id transferred the conversation to an agent."""
        for call in self.tool_calls or ():
            if call["call_id"] == call_id:
                call["transfer_to"] = agent

    def add_agent_tool(self, name: str) -> None:
        """Note that an agent was called as a tool, whose own tool calls are not seen."""
        self._agent_tools.add(name)
        self.tool_calls_problem = (
            f"those of {name!r} are not seen, which is an agent used as a tool"
        )

    def add_result(
        self,
        call_id: str | None,
        result: Any,
        *,
        is_error: bool = False,
        is_refused: bool = False,
        is_blocked: bool = False,
        name: str | None = None,
    ) -> None:
        """Note the result of the call with this id; without one, of the oldest open call.

        A refused call never reached a function: an unknown name, or arguments that do not fit. A
        blocked one reached a filter or middleware of the user that did not call the function. A
        result of a call that was not noted, such as one of an earlier turn, is left out.
        """
        answered = {tool_result["call_id"] for tool_result in self.tool_results}
        for call in self.tool_calls or ():
            is_open = call_id is None and name in {None, call["name"]}
            if call["call_id"] in answered or not (is_open or call["call_id"] == call_id):
                continue
            row = {"name": call["name"], "call_id": call["call_id"], "result": result}
            is_error |= is_refused
            flags = {"is_error": is_error, "refused": is_refused, "blocked": is_blocked}
            self.tool_results.append(row | {key: True for key, flag in flags.items() if flag})
            return

    def add_usage(
        self,
        prompt_tokens: int | None,
        completion_tokens: int | None,
        *,
        requests: int | None = 1,
        model: str | None = None,
        agent: str | None = None,
    ) -> None:
        """Add the tokens of requests that a model answered; unknown ones make the sum unknown."""
        self.models.append(model)
        self.requests_by_agent[agent] += requests or 0
        if self.requests is not None:
            self.requests = None if requests is None else self.requests + requests
        if prompt_tokens is None or completion_tokens is None or self._has_unknown_usage:
            self.usage, self._has_unknown_usage = None, True
            return
        before = self.usage or {"prompt_tokens": 0, "completion_tokens": 0}
        self.usage = {
            "prompt_tokens": before["prompt_tokens"] + prompt_tokens,
            "completion_tokens": before["completion_tokens"] + completion_tokens,
        }

    def add_missing(self, record: "TurnRecord") -> None:
        """Add the calls and the results of another record of the same turn that this one lacks."""
        known = {call["call_id"] for call in self.tool_calls or ()}
        missing = [call for call in record.tool_calls or () if call["call_id"] not in known]
        self.tool_calls = [*(self.tool_calls or ()), *missing]
        for result in record.tool_results:
            self.add_result(
                result["call_id"],
                result["result"],
                is_error=result.get("is_error", False),
                is_refused=result.get("refused", False),
                is_blocked=result.get("blocked", False),
            )

    def add_other_work(self, work: OtherWork) -> None:
        """Add what happened beyond the run that the adapter read."""
        self.left_out += work.left_out
        if self.tool_calls is not None:
            self.tool_calls = work.inserted_into(self.tool_calls)
            self.tool_results += work.results
            if self._agent_tools and self._agent_tools <= work.seen_tools:
                self.tool_calls_problem = None
            self.tool_calls_problem = self.tool_calls_problem or work.problem
        if work.counts_all:
            self.usage, self._has_unknown_usage, self.models = None, False, []
        if work.requests:
            self.add_usage(*work.usage, requests=len(work.requests))
            self.models[-1:] = [step.model for step in work.requests]


class FrameworkSession(ABC):
    """One conversation with an agent of a framework."""

    traced_as: ClassVar[str] = ""
    """The framework as its tracing is known; empty if no tracing of this process tells of it."""
    tools_run_no_agents = False
    """Whether the user says that no tool of the agent runs an agent of its own."""

    def __init__(
        self, agent: Any, options: Mapping[str, Any], context: Sequence["Message"] = ()
    ) -> None:
        """Begin after the earlier messages; `options` are arguments of each run."""
        self.turn = TurnRecord()
        """What is known of the latest turn; readable after it failed, too."""
        self._agent = agent
        self._options = options
        self._rejected: set[str | None] = set()
        """The ids of calls that a person rejected; results may come after further approvals."""
        self._earlier: list[Any] = []
        """What comes before the next message, as the framework has it."""
        if context:
            self.remember(context)

    async def take_turn(
        self, message: str, on_piece: Callable[[str], None] | None = None
    ) -> TurnRecord:
        """Return what happened in the agent's turn, and in the agents that its tools ran.

        `on_piece` gets the pieces of a streamed response. Raises what `send` raises; `turn` then
        has what was seen until then.
        """
        with watch_turn(self.traced_as) as trace:
            try:
                if on_piece is None:
                    return await self.send(message)
                async for piece in self.send_streaming(message):
                    on_piece(piece)
                return self.turn
            finally:
                self._note_other_work(trace)

    async def resume_turn(self, decisions: Sequence[bool]) -> TurnRecord:
        """Return what happened after a person decided about the pending approvals, in their order.

        The record begins with the calls that had no result before. A call that was rejected is
        blocked.
        """
        before = self.turn
        self.turn = TurnRecord(tool_calls=before.open_calls(), left_out=[*before.left_out])
        with watch_turn(self.traced_as) as trace:
            try:
                await self._resume(decisions)
            finally:
                self._note_other_work(trace)
        pairs = zip(before.pending_approvals, decisions, strict=True)
        self._rejected |= {call.get("call_id") for call, is_approved in pairs if not is_approved}
        for result in self.turn.tool_results:
            if result["call_id"] in self._rejected:
                result["blocked"] = True
        return self.turn

    async def _resume(self, decisions: Sequence[bool]) -> None:  # noqa: ARG002 - none asks
        """Continue the turn that waits for these decisions; `turn` has its open calls already."""
        raise FrameworkError(f"{self.traced_as} reports no approvals")

    def _note_other_work(self, trace: TurnTrace) -> None:
        turn = self.turn
        if turn.tool_calls and turn.tool_calls[-1] in turn.open_calls():
            turn.ends_with_calls = True
        work = trace.other_work(
            turn.tool_calls or (), turn.requests, turn.left_out, turn.requests_by_agent
        )
        if turn.traced_functions and (ran := trace.tools_that_ran()) is not None:
            for result in turn.tool_results:  # middleware answered instead of the function
                is_function = result["call_id"] in turn.traced_functions
                if is_function and result["call_id"] not in ran and not result.get("is_error"):
                    result["blocked"] = True
        if work is not None:
            turn.add_other_work(work)
        has_run_tools = bool(turn.tool_results) and not self.tools_run_no_agents
        problem = trace.blind_spot(has_run_tools=has_run_tools)
        if problem is not None:
            turn.tool_calls_problem = turn.tool_calls_problem or problem
            turn.add_usage(None, None, requests=0)

    @abstractmethod
    async def send(self, message: str) -> TurnRecord:
        """Return what happened in the agent's turn; the conversation continues from there.

        Exceptions of the framework escape. After one, or after a cancellation, the conversation is
        as it was before the message.
        """

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        """Yield the agent's response in pieces; in one, unless the framework streams."""
        yield str((await self.send(message)).response)

    def remember(self, messages: Sequence["Message"]) -> None:
        """Append messages to the conversation that the agent did not take part in."""
        self._earlier += self._convert(messages)

    @abstractmethod
    def _convert(self, messages: Sequence["Message"]) -> list[Any]:
        """Return messages of chat completions as the framework has them."""

    async def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what the conversation holds; may be called twice."""


class StreamingSession(FrameworkSession):
    """A conversation with an agent that may answer in pieces."""

    always_streams = False
    """Whether the user chose a method that streams."""

    async def send(self, message: str) -> TurnRecord:
        await exhaust(self._answer(message, streams=self.always_streams))
        return self.turn

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        """Yield the text that the agent writes, that before a tool call included.

        A response without any, such as a structured one, comes as a whole.
        """
        has_text = False
        async with aclosing(self._answer(message, streams=True)) as pieces:
            async for piece in pieces:
                if piece:
                    has_text = True
                    yield piece
        if not has_text:
            from pydantic_core import to_json  # each framework has it

            response = self.turn.response
            is_text = isinstance(response, str)
            yield response if is_text else to_json(response, fallback=str).decode()

    @abstractmethod
    def _answer(self, message: str, *, streams: bool) -> AsyncGenerator[str, None]:
        """Take a turn, and yield the text of the response as it comes, if it `streams`."""


async def exhaust(pieces: AsyncGenerator[Any, None]) -> None:
    """Let what yields pieces go on to its end."""
    async with aclosing(pieces):
        async for _ in pieces:
            pass


async def pieces_of(
    run: "Callable[[Callable[[str], None]], Coroutine[Any, Any, str | None]]",
) -> AsyncGenerator[str, None]:
    """Yield the pieces of text that `run` hands to its argument, or else the text that it returns.

    Raises what `run` raises. It is cancelled if the generator is closed before.
    """
    pieces: asyncio.Queue[str | None] = asyncio.Queue()
    task = asyncio.create_task(run(pieces.put_nowait))
    task.add_done_callback(lambda _: pieces.put_nowait(None))
    try:
        has_pieces = False
        while (piece := await pieces.get()) is not None:
            has_pieces = True
            yield piece
        text = await task
        if text is not None and not has_pieces:
            yield text
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class FrameworkAdapter(ABC):
    """An agent of a framework; the object stays as the user made it.

    Its conversations share nothing that it could help.
    """

    objects: ClassVar[tuple[str, ...]]
    """Names of the classes whose objects it adapts, as the framework's users write them."""
    reads: ClassVar[frozenset[Capability]] = ALL
    """What its conversations report; anything else is unknown."""
    takes_stubs = False
    """Whether stubs can take the calls of all its tools; else perhaps of some."""
    answers_approvals: ClassVar[bool] = False
    """Whether its conversations report what waits for an approval, and take decisions."""
    is_concurrent = True
    """Whether several conversations can take place concurrently."""

    def __init__(self, agent: Any, options: Mapping[str, Any] | None = None) -> None:
        """`options`: arguments of each run, which the user chose."""
        self._agent = agent
        self._options = options or {}

    @abstractmethod
    async def open(self, context: Sequence["Message"]) -> FrameworkSession:
        """Return a new conversation, after the earlier messages of `context`."""

    def tools(self) -> list[str] | None:
        """Return the names of the tools that the agent can call; None if unknown."""
        return None

    def required_arguments(self) -> dict[str, list[str]]:
        """Return the arguments that each tool needs, as far as its schema is known here."""
        return {}

    async def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what the adapter itself opened; may be called twice."""
