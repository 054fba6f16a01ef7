"""The base class of participants in Python."""

from abc import ABC, abstractmethod

from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.conversation.types import AgentInput, AgentReturnTypes


class AgentAdapter(ABC):
    """The base class of participants: derive from it and write `call`."""

    role: AgentRole = AgentRole.AGENT
    """The role that it plays."""

    @abstractmethod
    async def call(self, input: AgentInput) -> AgentReturnTypes:  # noqa: A002 - the name is public API
        """Return a text, a message, a list of messages, or the result that ends it all."""
