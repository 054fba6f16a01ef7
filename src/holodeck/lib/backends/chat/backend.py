"""`backend: chat`: an agent on any OpenAI-compatible endpoint, Azure included."""

import json
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from holodeck.errors import BackendError, BackendSessionError, BackendTimeoutError
from holodeck.lib.backends.base import ExecutionResult, Message
from holodeck.lib.backends.call_limits import call_with_limit
from holodeck.lib.backends.chat.loop import AgentCall, ChatLoop, ChatMessage
from holodeck.lib.backends.chat.wire import request_template
from holodeck.lib.chat.client import ChatClient
from holodeck.lib.chat.endpoint import Endpoint, ProxyFor
from holodeck.lib.chat.limits import call_limits, limiters_for
from holodeck.lib.tools.base import Tool
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider


class ChatBackend:
    """Asks the endpoint itself; no agent library stands in between.

    Args:
        llm: The model; its provider is `openai` or `azure_openai`.
        instructions: Sent word for word; none if empty.
        tools: What the model may call.
        schema: What the answer must look like; any text if not given.
        execution: Time limits and retries; their defaults if not given.
        proxy_for: Names the proxy on the way to a URL.

    Raises:
        ConfigError: The provider, the key or the endpoint makes no sense. Nothing is sent.
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
        limiters = limiters_for(execution)
        endpoint = Endpoint.of(llm, proxy_for)
        self._client = ChatClient(endpoint, llm.name, self._limits, limiters)
        self._loop = ChatLoop(self._client, request_template(llm, tools, schema), tools)
        self._instructions = instructions
        self._wants_structure = schema is not None

    async def initialize(self) -> None:
        """Nothing to make ready: whether the endpoint answers is seen when it is asked."""

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        """The answer to one message, in a conversation of its own. Raises BackendError."""
        return (await self.answer(message, self.opening(context)))[0]

    async def create_session(self, context: Sequence[Message] | None = None) -> "ChatSession":
        """A new conversation, after the earlier messages."""
        return ChatSession(self, self.opening(context))

    async def teardown(self) -> None:
        """Close the connections of the running event loop."""
        await self._client.close()

    def opening(self, context: Sequence[Message] | None = None) -> list[ChatMessage]:
        """What a conversation begins with: the instructions, and the earlier messages."""
        earlier: list[ChatMessage] = [dict(one) for one in context or ()]
        if not self._instructions:
            return earlier
        return [{"role": "system", "content": self._instructions}, *earlier]

    async def answer(
        self, message: str, history: Sequence[ChatMessage]
    ) -> tuple[ExecutionResult, list[ChatMessage]]:
        """The answer after the history, and the history with everything that is new.

        Raises BackendError.
        """
        call = AgentCall([*history, {"role": "user", "content": message}])
        try:
            run = partial(self._loop.run, call)
            result = await call_with_limit(run, self._limits.timeout, call.request_stats.attempts)
        except BackendError as error:
            raise _failure(error, call) from error
        if self._wants_structure:
            result.structured_output = _parsed(result.response)
        return result, call.messages


class ChatSession:
    """One conversation that is told from the beginning with each message."""

    def __init__(self, backend: ChatBackend, opening: list[ChatMessage]) -> None:
        self._backend = backend
        self._history = opening
        self._is_closed = False

    async def send(self, message: str) -> ExecutionResult:
        """The agent's answer; a message that failed leaves no trace. Raises BackendError."""
        if self._is_closed:
            raise BackendSessionError("the conversation is closed")
        result, self._history = await self._backend.answer(message, self._history)
        return result

    def remember(self, messages: Sequence[Message]) -> None:
        """Take the messages for said."""
        self._history = [*self._history, *(dict(one) for one in messages)]

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        """The agent's answer in one piece. Raises BackendError."""
        yield (await self.send(message)).response

    async def close(self) -> None:
        """End the conversation; may be called twice."""
        self._is_closed = True


def _failure(error: BackendError, call: AgentCall) -> BackendError:
    """The error with everything that was seen until then."""
    tries = len(call.request_stats.attempts)
    message = f"{error} (after {tries} tries)" if tries > 1 else str(error)
    kind = BackendTimeoutError if isinstance(error, BackendTimeoutError) else BackendSessionError
    return kind(message, call.request_stats.attempts, call.result(), refusal=error.refusal)


def _parsed(text: str) -> object | None:
    """The JSON that an answer holds; None if it holds none."""
    try:
        return json.loads(text)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        return None
