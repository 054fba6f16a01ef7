"""A conversation with an agent of a framework, through the protocol of backends."""

import re
from collections.abc import AsyncIterator, Sequence

from holodeck.errors import BackendError, BackendSessionError
from holodeck.lib.backends.base import ExecutionResult, Message
from holodeck.lib.backends.frameworks.base import (
    FrameworkAdapter,
    FrameworkError,
    FrameworkSession,
)
from holodeck.lib.backends.parsing import parse_result
from holodeck.lib.exceptions import describe
from holodeck.lib.llm.errors import error_chain

_LOOP = re.compile(r"[Ee]vent loop is closed|(different|another) (event )?loop")


class FrameworkConversation:
    """A session of an adapter whose failures carry what was seen until then."""

    def __init__(
        self,
        session: FrameworkSession,
        tools: list[str] | None,
        *,
        reads_errors: bool = True,
    ) -> None:
        self._session = session
        self._tools = tools
        self._reads_errors = reads_errors

    @classmethod
    async def open(
        cls, adapter: FrameworkAdapter, context: Sequence[Message]
    ) -> "FrameworkConversation":
        """Return a new conversation with the agent, after the earlier messages."""
        reads_errors = "tool errors" in adapter.reads
        return cls(await adapter.open(context), adapter.tools(), reads_errors=reads_errors)

    async def send(self, message: str) -> ExecutionResult:
        try:
            result = parse_result(await self._session.send(message))
        except BackendError:
            raise
        except Exception as error:
            seen = parse_result(self._session.turn)
            raise BackendSessionError(_describe(error), seen=seen) from error
        result.tools = self._tools
        if not self._reads_errors:
            for one in result.tool_results:
                one["is_error_unknown"] = not one.get("is_error")
        return result

    def send_streaming(self, message: str) -> AsyncIterator[str]:
        return self._session.send_streaming(message)

    def remember(self, messages: Sequence[Message]) -> None:
        self._session.remember(messages)

    async def close(self) -> None:
        await self._session.close()


def _describe(error: Exception) -> str:
    """Return what happened, and what to do if the agent's client is bound to another loop."""
    message = str(error) if isinstance(error, FrameworkError) else describe(error)
    if any(
        isinstance(cause, RuntimeError) and _LOOP.search(str(cause)) for cause in error_chain(error)
    ):
        return (
            "the agent, or its client, was used on another event loop; create it in a function"
            f" without parameters, and name that function: each run then has its own ({message})"
        )
    return message


async def ask_once(
    adapter: FrameworkAdapter, message: str, context: Sequence[Message]
) -> ExecutionResult:
    """Return the response to one message in a conversation of its own. Raises BackendError."""
    conversation = await FrameworkConversation.open(adapter, context)
    try:
        return await conversation.send(message)
    finally:
        await conversation.close()
