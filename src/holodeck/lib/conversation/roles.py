"""The parts that are played in a conversation."""

from enum import Enum
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]
"""A message as OpenAI has it: `role`, `content`, and perhaps `tool_calls`."""


UNSEEN_CALLS = "unseen_tool_calls"
"""Key of a message of an agent whose tool calls are unknown: its value is true."""
EARLIER = "earlier"
"""Key of a message that was said before the conversation: its value is true."""


class AgentRole(Enum):
    """The part that somebody plays; within a turn they speak in this order."""

    USER = "User"
    AGENT = "Agent"
    JUDGE = "Judge"
