"""A conversation with an agent of a framework, through the protocol of backends."""

import re
from collections.abc import AsyncIterator, Sequence
from functools import partial

from holodeck.errors import BackendError, BackendSessionError, BackendTimeoutError
from holodeck.lib.backends.base import ExecutionResult, Message
from holodeck.lib.backends.frameworks.base import (
    FrameworkAdapter,
    FrameworkError,
    FrameworkSession,
    TurnRecord,
)
from holodeck.lib.backends.parsing import parse_result
from holodeck.lib.exceptions import describe
from holodeck.lib.llm import provider_errors
from holodeck.lib.llm.errors import error_chain
from holodeck.lib.llm.limits import call_with_limit, stream_with_limit

_LOOP = re.compile(r"[Ee]vent loop is closed|(different|another) (event )?loop")


class FrameworkConversation:
    """A session of an adapter, with time limits; its failures carry what was seen until then.

    Args:
        session: The session.
        adapter: The adapter that opened it.
        limit_s: Seconds for each turn; None for no limit.
    """

    def __init__(
        self, session: FrameworkSession, adapter: FrameworkAdapter, limit_s: float | None
    ) -> None:
        self._session = session
        self._tools = adapter.tools()
        self._reads_errors = "tool errors" in adapter.reads
        self._limit_s = limit_s

    @classmethod
    async def open(
        cls, adapter: FrameworkAdapter, context: Sequence[Message], limit_s: float | None
    ) -> "FrameworkConversation":
        """Return a new conversation, after the earlier messages. Raises BackendError."""
        session = await call_with_limit(partial(adapter.open, context), limit_s)
        session.tools_run_no_agents = adapter.tools_run_no_agents
        return cls(session, adapter, limit_s)

    async def send(self, message: str) -> ExecutionResult:
        try:
            return await call_with_limit(partial(self._send, message), self._limit_s)
        except BackendTimeoutError as error:
            error.seen = self._result(self._session.turn)
            raise

    def send_streaming(self, message: str) -> AsyncIterator[str]:
        """Yield the agent's response in pieces, each within the limit. Raises BackendError."""
        return stream_with_limit(self._session.send_streaming(message), self._limit_s)

    def remember(self, messages: Sequence[Message]) -> None:
        self._session.remember(messages)

    async def close(self) -> None:
        await self._session.close()

    async def _send(self, message: str) -> ExecutionResult:
        try:
            return self._result(await self._session.take_turn(message))
        except BackendError:
            raise
        except Exception as error:
            seen = self._result(self._session.turn)
            refusal = provider_errors.refusal_in(error)
            raise BackendSessionError(_describe(error), seen=seen, refusal=refusal) from error

    def _result(self, turn: TurnRecord) -> ExecutionResult:
        result = parse_result(turn)
        result.tools = self._tools
        if not self._reads_errors:
            for one in result.tool_results:
                one["is_error_unknown"] = not one.get("is_error")
        return result


def _describe(error: Exception) -> str:
    """Return what happened, and what to do if the agent's client is bound to another loop."""
    if isinstance(error, FrameworkError):
        return str(error)
    is_of_provider = provider_errors.is_provider_error(error)
    message = provider_errors.describe(error) if is_of_provider else describe(error)
    causes = [one for one in error_chain(error) if isinstance(one, RuntimeError)]
    if any(_LOOP.search(str(cause)) for cause in causes):
        return (
            "the agent, or its client, was used on another event loop; create it in a function"
            f" without parameters, and name that function: each run then has its own ({message})"
        )
    return message


async def ask_once(
    adapter: FrameworkAdapter, message: str, context: Sequence[Message], limit_s: float | None
) -> ExecutionResult:
    """Return the response to one message in a conversation of its own. Raises BackendError."""
    conversation = await FrameworkConversation.open(adapter, context, limit_s)
    try:
        return await conversation.send(message)
    finally:
        await conversation.close()
