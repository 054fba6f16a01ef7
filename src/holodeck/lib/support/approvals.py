"""How a person decides about what an agent waits for, as the message that follows."""

from __future__ import annotations

from collections.abc import Iterable


class ApprovalDecisions(str):
    """The decisions about all pending approvals, for a backend whose `Capabilities` accept them.

    They continue the turn in which the agent asked.
    """

    __slots__ = ("decisions",)
    decisions: tuple[bool, ...]

    def __new__(cls, decisions: Iterable[bool]) -> ApprovalDecisions:
        """Return the message; whoever reads it as a string sees the words."""
        known = tuple(decisions)
        words = ("approved" if is_approved else "rejected" for is_approved in known)
        message = super().__new__(cls, ", ".join(words))
        message.decisions = known
        return message
