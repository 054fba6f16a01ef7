"""The one protocol through which an agent is reached, whatever stands behind it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict, runtime_checkable

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
