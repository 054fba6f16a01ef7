"""The protocols of backends, through which every agent is reached."""

import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypedDict, runtime_checkable

from holodeck.errors import BackendError as BackendError  # noqa: PLC0414 - documented here
from holodeck.errors import BackendInitError as BackendInitError  # noqa: PLC0414
from holodeck.errors import BackendSessionError as BackendSessionError  # noqa: PLC0414
from holodeck.errors import BackendTimeoutError as BackendTimeoutError  # noqa: PLC0414
from holodeck.errors import ConfigError
from holodeck.models.cases.messages import Message as Message  # noqa: PLC0414
from holodeck.models.llm import LLMProvider
from holodeck.models.results.evidence import Fact, Source
from holodeck.models.results.outcome import Attempt, ModelCost, ModelRequest, RaisedError
from holodeck.models.token_usage import TokenUsage

if TYPE_CHECKING:
    from holodeck.lib.tools.base import Tool


class _Named(TypedDict):
    name: str


class RequestedCall(_Named, total=False):
    """A call that the model requested."""

    arguments: dict[str, Any]
    """Left out if unknown."""
    call_id: str
    error: str
    """Why the arguments could not be parsed."""
    agent: str
    """Name of the agent that requested the call, where several take part."""
    transfer_to: str
    """Name of the agent to which the call transferred the conversation."""


class ToolResult(_Named, total=False):
    """What a tool returned."""

    result: Any
    call_id: str
    is_error: bool
    is_error_unknown: bool
    """Whether the backend cannot see if the tool failed."""
    prevented: bool
    """Whether the tool did not run, because it has side effects that are not allowed."""
    refused: bool
    """Whether the call never reached a tool: unknown name, unreadable or invalid arguments."""
    blocked: bool
    """Whether the tool did not run, because a filter, middleware or a rejected approval kept it
    from it."""
    duration_ms: int
    raised: RaisedError
    """Where the code of a function tool raised the error."""
    server: str
    """Name of the entry of `tools` that the tool belongs to, for entries with several tools."""
    passages: list[str]
    """What the tool retrieved, one entry per chunk; left out for tools that retrieve nothing, or
    whose backend cannot tell."""
    model_cost: ModelCost
    """What the model cost that the tool called; `token_usage` of the turn includes its tokens."""


@dataclass
class ExecutionResult:
    """What an agent did and answered in a turn.

    `is_error` means that the agent answered, but with a failure (`error_reason`); a backend that
    cannot reach its agent raises instead. `attempts` holds the attempts that failed.
    """

    response: str
    tool_calls: list[RequestedCall] | None = None
    """None if the backend cannot see them: unknown, which is not the same as none ([])."""
    tool_results: list[ToolResult] = field(default_factory=list)
    token_usage: TokenUsage | None = None
    """None if unknown."""
    structured_output: Any | None = None
    num_turns: int = 1
    is_error: bool = False
    error_reason: str | None = None
    attempts: list[Attempt] = field(default_factory=list)
    source: Source = "backend"
    """Who saw the tool calls, the token usage and the agents."""
    tapped: frozenset[Fact] = frozenset()
    """The facts that the backend does not know but its tap saw."""
    tool_calls_problem: str | None = None
    """Why there may be more tool calls than `tool_calls`, so that none can be proved absent."""
    ends_with_calls: bool = False
    """Whether the agent says that it stopped after its tool calls, so that there is no answer."""
    left_out: frozenset[str] = frozenset()
    """Names of tools whose calls are no tool calls: they shape the answer."""
    model_requests: list[ModelRequest] = field(default_factory=list)
    """The requests to models that the tap saw."""
    agents: list[str] | None = None
    """Names of the agents that spoke, in order, consecutive repeats collapsed; None if unknown."""
    tools: list[str] | None = None
    """Names of the tools that the agent can call; None if unknown."""
    model: str | None = None
    """The model that answered, as its provider calls it; None if unknown or several."""
    retrieval_context: list[str] | None = None
    """The passages that the agent says it retrieved; None if it does not say."""
    pending_approvals: list[RequestedCall] = field(default_factory=list)
    """What the agent waits for a person to approve; an `ApprovalDecisions` continues the turn."""
    waited_ms: int = 0
    """How long requests waited for a slot; not part of the agent's latency."""

    def followed_by(self, rest: "ExecutionResult") -> "ExecutionResult":
        """Return what happened in a turn that began with this, and went on after approvals.

        `rest` repeats the calls that had no result before.
        """
        answered = {result.get("call_id") for result in self.tool_results}
        begun = {call.get("call_id") for call in self.tool_calls or ()} - answered
        calls = [
            *(self.tool_calls or ()),
            *(call for call in rest.tool_calls or () if call.get("call_id") not in begun),
        ]
        problem = self.tool_calls_problem or rest.tool_calls_problem
        is_known = (self.tool_calls is not None, rest.tool_calls is not None)
        if any(is_known) and not all(is_known):
            problem = problem or "those of a part of the turn are not seen"
        agents = _joined(self.agents, rest.agents)
        return replace(
            rest,
            tool_calls=calls if any(is_known) else None,
            tool_results=[*self.tool_results, *rest.tool_results],
            tool_calls_problem=problem,
            token_usage=None
            if self.token_usage is None or rest.token_usage is None
            else self.token_usage + rest.token_usage,
            model=self.model if self.model == rest.model else None,
            num_turns=self.num_turns + rest.num_turns,
            attempts=[*self.attempts, *rest.attempts],
            tapped=self.tapped | rest.tapped,
            left_out=self.left_out | rest.left_out,
            model_requests=[*self.model_requests, *rest.model_requests],
            agents=None if agents is None else [name for name, _ in groupby(agents)],
            retrieval_context=_joined(self.retrieval_context, rest.retrieval_context),
            waited_ms=self.waited_ms + rest.waited_ms,
        )


def _joined(first: list[str] | None, rest: list[str] | None) -> list[str] | None:
    """Return what both parts of a turn tell; None if one of them does not."""
    return None if first is None or rest is None else [*first, *rest]


@runtime_checkable
class AgentSession(Protocol):
    """One conversation with an agent that remembers its earlier turns.

    A class that derives from it inherits the methods with a body.
    """

    async def send(self, message: str) -> ExecutionResult:
        """Return the agent's response. Raises BackendError."""
        ...

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        """Yield the agent's response in pieces; here, in one. Raises BackendError."""
        yield (await self.send(message)).response

    async def close(self) -> None:
        """Release what the conversation holds; may be called twice."""
        ...


@runtime_checkable
class AcceptsHistory(Protocol):
    """A session that can be given messages which it did not take part in."""

    def remember(self, messages: Sequence[Message]) -> None:
        """Append the messages to the history."""
        ...


@runtime_checkable
class AgentBackend(Protocol):
    """A way to reach an agent; each `invoke_once` and each session is isolated from the others.

    A class that derives from it inherits the methods with a body.
    """

    async def initialize(self) -> None:
        """Prepare the agent; may be called twice. Raises BackendInitError."""
        ...

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        """Return the response to a message, after the earlier messages of `context`.

        Raises BackendError; its `attempts` attribute, where present, holds the attempts made.
        """
        session = await self.create_session(context)
        try:
            return await session.send(message)
        finally:
            await session.close()

    async def create_session(self, context: Sequence[Message] | None = None) -> AgentSession:
        """Return a new conversation, after the earlier messages of `context`.

        `context` is passed only if there are earlier messages: an agent that does not support
        them may leave the parameter out.
        """
        ...

    async def teardown(self) -> None:
        """Release everything; may be called twice, and without `initialize`."""
        ...


Method = Literal["invoke_once", "create_session"]
"""How the runner calls an agent: for one message, or for a conversation."""

NO_CONTEXT_PARAMETER = (
    "the agent cannot be given earlier messages: its function has no parameter 'context';"
    " write 'def agent(message, context)', say"
)
NO_MESSAGES_PLACEHOLDER = (
    "the request has no place for earlier messages; write '{messages}' in backend.request"
)
NO_CASE_CONTEXT = "the backend passes no context to its agent; remove it"
NO_APPROVALS = (
    "the agent's backend reports no approvals; only agents of Agent Framework, the OpenAI Agents"
    " SDK, PydanticAI, LangGraph, Google ADK and the Claude Agent SDK ask for them, so remove it"
)
NO_STUBS = "the agent's tools run where holodeck cannot stub them; remove it"
NO_SEAL = (
    "the framework of the agent has no place where holodeck could keep a tool from running; remove"
    " it, and mark the functions of the tools with holodeck.stubbed, so that stubs take their calls"
)
NO_SEAL_BEHIND_TAP = (
    "the agent's tools run, and holodeck only replaces their results in its requests to its model;"
    " remove it"
)
NO_MODEL_STAND_INS = (
    "the agent's requests to its model do not pass holodeck; write 'tap: true' under 'backend', or"
    " give an agent that Python builds a holodeck.scripted_model()"
)
NO_CASE_CONTEXT_PARAMETER = (
    "the agent takes no context: give it a parameter 'case_context', or one called 'context'"
    " that is annotated as a dict"
)


@dataclass(frozen=True)
class Capabilities:
    """What an agent can do, as far as its backend knows it once it is initialized.

    A backend may declare it as its attribute `capabilities`.
    """

    concurrency: int | None = None
    """How many messages it takes at a time; None if only its provider limits them."""
    runs_user_code: bool = False
    """Whether the agent is code of the user in this process."""
    accepts_images: bool = False
    """Whether a message may be a `models.cases.messages.MessageWithImages`."""
    answers_approvals: bool = False
    """Whether pending approvals are reported, and a message may be an `ApprovalDecisions`."""
    history_problems: Mapping[Method, str] = field(default_factory=dict)
    """Why the agent cannot be given earlier messages, for each way to call it; empty if it can."""
    context_problem: str | None = NO_CASE_CONTEXT
    """Why the context of a test case does not reach it; None if `in_context` passes it on."""
    stub_problem: str | None = NO_STUBS
    """Why stubs cannot take the calls of its tools; None if they can."""
    seal_problem: str | None = NO_STUBS
    """Why its tools cannot be kept from running; None if they can."""
    model_problem: str | None = NO_MODEL_STAND_INS
    """Why nothing can stand in for its model; None if faults and a scripted model can."""
    tools: "Sequence[Tool] | None" = None
    """The tools that its model is offered; None if unknown."""
    preparation_costs: Sequence[ModelCost] = ()
    """What models cost that were asked before the first message."""


@dataclass(frozen=True)
class AgentDescription:
    """What an agent is."""

    kind: str
    """Such as `function answer` or `ChatCompletionAgent of Semantic Kernel`."""
    tools: list[str] | None
    """The names of the tools that it can call; None if unknown."""
    history_problem: str | None
    """Why a conversation with it cannot begin with earlier messages; None if it can."""
    answers_approvals: bool = False
    """Whether it reports what waits for an approval."""
    name: str | None = None
    """The agent's own name; None if it has none."""
    seal_problem: str | None = None
    """Why its tools cannot be kept from running; None if they can."""
    required_arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The arguments that each of its tools needs, as far as they are known."""

    def __str__(self) -> str:
        """`ChatCompletionAgent of Semantic Kernel; tools: lookup_order; keeps context`."""
        tools = "unknown"
        if self.tools is not None:
            tools = ", ".join(self.tools) or "none"
        keeps = "keeps" if self.history_problem is None else "does not see"
        return f"{self.kind}; tools: {tools}; {keeps} the earlier messages of a conversation"


def model_problem(llm: LLMProvider | None) -> str | None:
    """Return why nothing can stand in for the model of a built-in agent; None if it can."""
    if llm is None or llm.protocol != "anthropic":
        return None
    return (
        f"a model of {llm.provider.value} is not called by holodeck's own client; write 'model:"
        " {provider: scripted}', or a provider with OpenAI's protocol"
    )


def without_history(problem: str | None) -> dict[Method, str]:
    """Return the `history_problems` of an agent that has this one however it is called."""
    return {} if problem is None else {"invoke_once": problem, "create_session": problem}


def capabilities_of(backend: AgentBackend) -> Capabilities:
    """Return what a backend declares; for one that declares nothing, what its methods show."""
    declared = getattr(backend, "capabilities", None)
    if isinstance(declared, Capabilities):
        return declared
    methods: dict[Method, Any] = {
        "invoke_once": backend.invoke_once,
        "create_session": backend.create_session,
    }
    problems: dict[Method, str] = {
        name: f"the agent cannot be given earlier messages: {name} of {type(backend).__name__} has"
        " no parameter 'context'"
        for name, method in methods.items()
        if "context" not in inspect.signature(method).parameters
    }
    takes_context = isinstance(backend, AcceptsContext)
    return Capabilities(
        history_problems=problems,
        context_problem=None if takes_context else NO_CASE_CONTEXT,
        seal_problem=None,
        stub_problem=None,  # its code may mark functions with `holodeck.stubbed`
    )


async def open_session(
    backend: AgentBackend, context: Sequence[Message] | None = None
) -> AgentSession:
    """Return a new conversation, after the earlier messages if there are some."""
    if context:
        return await backend.create_session(context=context)
    return await backend.create_session()


def remember(session: AgentSession, messages: Sequence[Message]) -> None:
    """Append messages that the agent did not take part in. Raises ConfigError if it cannot."""
    if not isinstance(session, AcceptsHistory):
        raise ConfigError(
            "the agent's backend",
            "does not accept messages that a script writes for the agent; give its sessions a"
            " method remember(messages), or remove 'agent: …' and 'message'",
        )
    session.remember(messages)


CaseContext = Mapping[str, Any]
"""The `context` of a test case, which the agent gets besides the input."""


@runtime_checkable
class AcceptsContext(Protocol):
    """A backend that can pass the context of a test case to its agent."""

    def in_context(self, context: CaseContext) -> AgentBackend:
        """Return the backend for a case with that context."""
        ...


class InContext:
    """A backend of ours that passes the context of a case to its agent."""

    case_context: CaseContext | None = None

    def in_context(self, context: CaseContext) -> Self:
        """Return the backend for a case, which shares all else with the others."""
        bound = copy(self)
        bound.case_context = context
        return bound


def backend_in_context(
    backend: AgentBackend, context: CaseContext | None, location: str
) -> AgentBackend:
    """Return the backend for a case with a copy of its context.

    Raises ConfigError at `location` if the context would not reach the agent.
    """
    if context is None:
        return backend
    problem = capabilities_of(backend).context_problem
    if problem is not None or not isinstance(backend, AcceptsContext):
        raise ConfigError(location, problem or NO_CASE_CONTEXT)
    try:
        return backend.in_context(deepcopy(dict(context)))
    except ConfigError as error:
        raise ConfigError(location, error.message) from error
