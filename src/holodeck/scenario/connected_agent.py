"""Functions as agents: those with a `name` and `invoke(call)`, as `langwatch.connect_agent` makes.

Nothing of that library is imported; any such object may be among the `agents` of a run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.conversation.types import AgentInput, AgentReturnTypes
from holodeck.scenario.agent_adapter import AgentAdapter

_TRACEPARENT = re.compile(r"[^-]*-([^-]{32})-")


@dataclass
class ConnectedAgentCall:
    """What such an agent is given in a turn."""

    messages: list[Any]
    new_messages: list[Any] = field(default_factory=list)
    thread_id: str = ""
    session: Any = None
    """What the agent returned as its session in the turn before; None in the first."""
    trace_id: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)

    def turn_fields(self) -> dict[str, Any]:
        """All fields but the parameters."""
        names = ("messages", "new_messages", "thread_id", "session", "trace_id")
        return {name: getattr(self, name) for name in names}


def is_connected_agent(value: Any) -> bool:
    """Whether it is a function with a name and `invoke`, and no adapter."""
    if isinstance(value, AgentAdapter | type) or not callable(value):
        return False
    is_named = isinstance(getattr(value, "name", None), str)
    return is_named and callable(getattr(value, "invoke", None))


def read_reply(reply: Any) -> tuple[AgentReturnTypes, Any]:
    """Return what the agent says, and its session; None if the reply has none."""
    match reply:
        case {"output": output}:
            return _to_messages(output), reply.get("session")
        case str() | list() | tuple() | Mapping():
            return _to_messages(reply), None
    return _to_messages(getattr(reply, "output", reply)), getattr(reply, "session", None)


def _to_messages(output: Any) -> AgentReturnTypes:
    """Return the messages of an output, or its text; nothing is said by None."""
    match output:
        case str() | Mapping():
            return output  # type: ignore[return-value]
        case list() | tuple():
            return list(output)
    return "" if output is None else str(output)


class ConnectedAgentAdapter(AgentAdapter):
    """Calls such a function as the agent under test, and gives it back its session.

    Args:
        agent: The function.
        parameters: Its parameters; those that are not given have the function's own defaults.

    Raises:
        ConfigError: It is no such function.
    """

    role = AgentRole.AGENT

    def __init__(self, agent: Any, parameters: Mapping[str, Any] | None = None) -> None:
        if not is_connected_agent(agent):
            raise NotConnected(
                "ConnectedAgentAdapter", f"{agent!r} has no `name` and `invoke(call)`"
            )
        self.agent = agent
        self.name = agent.name
        self.parameters = dict(parameters or {})
        self._session_by_thread: dict[str, Any] = {}

    def session_for(self, thread_id: str) -> Any:
        """Return what the function gave as its session in this thread; None if it gave none."""
        return self._session_by_thread.get(thread_id)

    async def call(self, input: AgentInput) -> AgentReturnTypes:  # noqa: A002 - the name is public API
        """Return what the function says."""
        traceparent = _TRACEPARENT.match(input.propagation_headers.get("traceparent", ""))
        call = ConnectedAgentCall(
            messages=list(input.messages),
            new_messages=list(input.new_messages),
            thread_id=input.thread_id,
            session=self.session_for(input.thread_id),
            trace_id=traceparent[1] if traceparent else None,
            parameters=dict(self.parameters),
        )
        messages, session = read_reply(await self.agent.invoke(call))
        if session is not None:
            self._session_by_thread[call.thread_id] = session
        return messages


class NotConnected(ConfigError, TypeError):
    """What is given to ConnectedAgentAdapter is no connected function."""


def resolve_agents(agents: Sequence[Any], parameters: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the participants, functions in an adapter."""
    return [
        ConnectedAgentAdapter(agent, parameters) if is_connected_agent(agent) else agent
        for agent in agents
    ]
