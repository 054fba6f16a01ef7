"""Conversations that begin in the middle: which agents can be told what was said before."""

import inspect
from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from holodeck.lib.backends.base import AgentBackend, AgentSession, Message

Method = Literal["invoke_once", "create_session"]
"""How an agent is reached: by one message, or for a conversation."""

NO_MEMORY = (
    "the agent cannot be told what was said before: what answers has no parameter 'context';"
    " write 'def agent(message, context)', say"
)

NO_MESSAGES = "the request has no place for earlier messages; write '{messages}' in backend.request"


@runtime_checkable
class ReportsHistorySupport(Protocol):
    """A backend that may be unable to pass on earlier messages."""

    def why_forgetful(self, method: Method) -> str | None:
        """Why it cannot be told what was said before; None if it can. Known when it is ready."""
        ...


def why_no_history(backend: AgentBackend, method: Method) -> str | None:
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
