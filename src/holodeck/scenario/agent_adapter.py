"""What takes part in a conversation."""

from abc import ABC, abstractmethod

from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.conversation.types import AgentInput, AgentReturnTypes


class AgentAdapter(ABC):
    """Derive from it and write `call`, to put an agent of any make under test."""

    role: AgentRole = AgentRole.AGENT
    """The part it plays."""

    @abstractmethod
    async def call(self, input: AgentInput) -> AgentReturnTypes:  # noqa: A002 - the name is public API
        """What it says: a text, a message, a list of messages, or the result that ends it all."""
