"""The protocols of backends, through which every agent is reached."""

import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypedDict, runtime_checkable

from holodeck.errors import ConfigError
from holodeck.models.evidence import Source
from holodeck.models.outcome import Attempt, RaisedError
from holodeck.models.token_usage import TokenUsage


class _Named(TypedDict):
    name: str


class ToolCall(_Named, total=False):
    """A tool call as the agent made it."""

    arguments: dict[str, Any]
    call_id: str
    error: str
    """Why the arguments could not be read."""


class ToolResult(_Named, total=False):
    """What a tool gave back."""

    result: Any
    call_id: str
    is_error: bool
    refused: bool
    """Whether the call never reached a tool: unknown name, unreadable or unfitting arguments."""
    duration_ms: int
    raised: RaisedError
    """Where the code of a function tool raised the error."""


class _Said(TypedDict):
    role: str
    content: str


class Message(_Said, total=False):
    """One earlier message of a conversation, as chat completions have it.

    An answer that called tools may have an empty `content`.
    """

    tool_calls: list[dict[str, Any]]
    """Of an assistant's message, each with `id`, `type` and `function`."""
    tool_call_id: str
    """The call whose result the message is; its role is `tool`."""
    name: str


@dataclass
class ExecutionResult:
    """What one exchange with an agent gave.

    `is_error` says that the agent answered, but with a failure (`error_reason`); a backend that
    could not reach its agent raises instead. `attempts` holds the tries that did not work.
    """

    response: str
    tool_calls: list[ToolCall] | None = None
    """None if the backend cannot see them: unknown, which is not the same as none ([])."""
    tool_results: list[ToolResult] = field(default_factory=list)
    token_usage: TokenUsage | None = None
    """None if the backend does not learn it."""
    structured_output: Any | None = None
    num_turns: int = 1
    is_error: bool = False
    error_reason: str | None = None
    attempts: list[Attempt] = field(default_factory=list)
    source: Source = "backend"
    """Who saw the tool calls and the token usage."""
    waited_ms: int = 0
    """How long requests waited for a slot of the endpoint; not the agent's time."""


@runtime_checkable
class AgentSession(Protocol):
    """One conversation that remembers what was said."""

    async def send(self, message: str) -> ExecutionResult:
        """The agent's answer. Raises BackendError."""
        ...

    def send_streaming(self, message: str) -> AsyncIterator[str]:
        """The agent's answer in pieces. Raises BackendError."""
        ...

    async def close(self) -> None:
        """Let go of what the conversation holds; may be called twice."""
        ...


@runtime_checkable
class AcceptsHistory(Protocol):
    """A session that can be told what was said without it."""

    def remember(self, messages: Sequence[Message]) -> None:
        """Take the messages for said, after all that was said until then."""
        ...


@runtime_checkable
class AgentBackend(Protocol):
    """A way to reach an agent; each `invoke_once` and each session is isolated from the others."""

    async def initialize(self) -> None:
        """Make ready; may be called twice. Raises BackendInitError."""
        ...

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        """The answer to one message, after the earlier messages of `context`.

        Raises BackendError; its `attempts` attribute, where present, holds the tries made.
        """
        ...

    async def create_session(self, context: Sequence[Message] | None = None) -> AgentSession:
        """A new conversation, after the earlier messages of `context`.

        It is given only where there are some: an agent without conversations that begin in the
        middle may leave the parameter out.
        """
        ...

    async def teardown(self) -> None:
        """Let go of everything; may be called twice, and without `initialize`."""
        ...


Method = Literal["invoke_once", "create_session"]
"""How an agent is reached: by one message, or for a conversation."""

NO_CONTEXT_PARAMETER = (
    "the agent cannot be told what was said before: what answers has no parameter 'context';"
    " write 'def agent(message, context)', say"
)

NO_MESSAGES_PLACEHOLDER = (
    "the request has no place for earlier messages; write '{messages}' in backend.request"
)


@runtime_checkable
class ReportsHistorySupport(Protocol):
    """A backend that may be unable to pass on earlier messages."""

    def why_forgetful(self, method: Method) -> str | None:
        """Why it cannot be told what was said before; None if it can. Known when it is ready."""
        ...


def history_problem(backend: AgentBackend, method: Method) -> str | None:
    """Why a conversation cannot begin with earlier messages; None if it can."""
    if isinstance(backend, ReportsHistorySupport):
        return backend.why_forgetful(method)
    reached = backend.invoke_once if method == "invoke_once" else backend.create_session
    if "context" in inspect.signature(reached).parameters:
        return None
    return (
        f"the agent cannot be told what was said before: {method} of"
        f" {type(backend).__name__} has no parameter 'context'"
    )


async def open_session(
    backend: AgentBackend, context: Sequence[Message] | None = None
) -> AgentSession:
    """A new conversation, after the earlier messages if there are some."""
    if context:
        return await backend.create_session(context=context)
    return await backend.create_session()


CaseContext = Mapping[str, Any]

NO_CASE_CONTEXT_PARAMETER = (
    "the agent takes no context: give it a parameter 'case_context', or one called 'context'"
    " that is annotated as a dict"
)


@runtime_checkable
class AcceptsContext(Protocol):
    """A backend that can tell its agent the context of a case."""

    def in_context(self, context: CaseContext) -> AgentBackend:
        """The backend for one case with that context. Raises ConfigError if it goes nowhere."""
        ...


def backend_in_context(
    backend: AgentBackend, context: CaseContext | None, where: str
) -> AgentBackend:
    """The backend for a case, told a copy of its context; `where` opens the messages.

    Raises ConfigError for a context that would not reach the agent.
    """
    if context is None:
        return backend
    if not isinstance(backend, AcceptsContext):
        raise ConfigError(where, "the backend passes no context to its agent; remove it")
    try:
        return backend.in_context(deepcopy(dict(context)))
    except ConfigError as error:
        raise ConfigError(where, error.message) from error
