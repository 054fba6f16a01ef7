"""`backend: chat`: an agent on any OpenAI-compatible endpoint, Azure included."""

import json
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from holodeck.errors import BackendError, BackendSessionError, BackendTimeoutError
from holodeck.lib.backends.base import ExecutionResult, Message
from holodeck.lib.backends.call_limits import call_with_limit
from holodeck.lib.backends.chat.loop import ChatLoop, ChatMessage, ChatTurn, request_template
from holodeck.lib.chat.client import ChatClient
from holodeck.lib.chat.endpoint import Endpoint, ProxyFor
from holodeck.lib.chat.limits import call_limits, limiters_for
from holodeck.lib.retry import with_attempts
from holodeck.lib.tools.base import Tool
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider


class ChatBackend:
    """Sends requests to the endpoint itself, without an agent library.

    Args:
        llm: The model; its provider is `openai` or `azure_openai`.
        instructions: Sent unchanged as the system message; none if empty.
        tools: The tools that the model may call.
        schema: JSON schema of the response; any text if not given.
        execution: Time limits and retries; their defaults if not given.
        proxy_for: Returns the proxy for a URL.

    Raises:
        ConfigError: The provider, the key or the endpoint is unusable. Nothing is sent.
    """

    def __init__(
        self,
        llm: LLMProvider,
        instructions: str,
        tools: Sequence[Tool] = (),
        schema: dict[str, Any] | None = None,
        execution: ExecutionConfig | None = None,
        proxy_for: ProxyFor | None = None,
    ) -> None:
        self._limits = call_limits(execution)
        endpoint = Endpoint.of(llm, proxy_for)
        self._client = ChatClient(endpoint, llm.name, self._limits, limiters_for(execution))
        self._loop = ChatLoop(self._client, request_template(llm, tools, schema), tools)
        self._instructions = instructions
        self._has_schema = schema is not None

    async def initialize(self) -> None:
        """Do nothing: the first request shows whether the endpoint answers."""

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        """Return the response to one message, in a conversation of its own. Raises BackendError."""
        return (await self.answer(message, self._opening(context)))[0]

    async def create_session(self, context: Sequence[Message] | None = None) -> "ChatSession":
        return ChatSession(self, self._opening(context))

    async def teardown(self) -> None:
        """Close the connections of the running event loop."""
        await self._client.close()

    async def answer(
        self, message: str, history: Sequence[ChatMessage]
    ) -> tuple[ExecutionResult, list[ChatMessage]]:
        """Return the result of one turn, and the history with all its messages.

        Raises BackendError.
        """
        turn = ChatTurn(messages=[*history, {"role": "user", "content": message}])
        try:
            run = partial(self._loop.run, turn)
            result = await call_with_limit(run, self._limits.timeout, turn.attempts)
        except BackendError as error:
            timed_out = isinstance(error, BackendTimeoutError)
            kind = BackendTimeoutError if timed_out else BackendSessionError
            shown = with_attempts(str(error), len(turn.attempts))
            raise kind(shown, turn.attempts, turn.result(), refusal=error.refusal) from error
        if self._has_schema:
            result.structured_output = _parsed(result.response)
        return result, turn.messages

    def _opening(self, context: Sequence[Message] | None) -> list[ChatMessage]:
        """Return the first messages of a conversation: the instructions and the context."""
        earlier: list[ChatMessage] = [dict(one) for one in context or ()]
        if not self._instructions:
            return earlier
        return [{"role": "system", "content": self._instructions}, *earlier]


class ChatSession:
    """One conversation; each request sends the whole history."""

    def __init__(self, backend: ChatBackend, history: list[ChatMessage]) -> None:
        self._backend = backend
        self._history = history
        self._is_closed = False

    async def send(self, message: str) -> ExecutionResult:
        """Return the agent's response; a failed turn leaves the history unchanged.

        Raises BackendError.
        """
        if self._is_closed:
            raise BackendSessionError("the conversation is closed")
        result, self._history = await self._backend.answer(message, self._history)
        return result

    def remember(self, messages: Sequence[Message]) -> None:
        self._history = [*self._history, *(dict(one) for one in messages)]

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        """Yield the agent's response in one piece. Raises BackendError."""
        yield (await self.send(message)).response

    async def close(self) -> None:
        self._is_closed = True


def _parsed(text: str) -> object | None:
    """Return the JSON in a response; None if it is no JSON."""
    try:
        return json.loads(text)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        return None
