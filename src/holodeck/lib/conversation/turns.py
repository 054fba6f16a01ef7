"""Whose turn it is: the order of roles, and who of each has spoken."""

from collections.abc import Sequence

from holodeck.lib.conversation.roles import AgentRole
from holodeck.lib.conversation.types import Participant


class Turns:
    """The turn under way. Turns count from 0.

    Args:
        parties: All who take part; of a role they speak in this order.
    """

    def __init__(self, participants: Sequence[Participant]) -> None:
        self._parties = participants
        self.current = 0
        self._roles: list[AgentRole] = []
        self._silent: set[int] = set()
        self._begin()

    @property
    def is_fresh(self) -> bool:
        """Whether nobody has spoken or been passed over yet."""
        everybody = {id(participant) for participant in self._parties}
        return (
            self.current == 0 and len(self._roles) == len(AgentRole) and self._silent == everybody
        )

    def next_turn(self) -> None:
        """Begin another turn, in which everybody may speak."""
        self.current += 1
        self._begin()

    def next_index(self) -> int | None:
        """Who speaks next, drops roles that nobody is left for; None if the turn is over."""
        while self._roles:
            index = self._of_role(self._roles[0])
            if index is not None:
                return index
            self._roles.pop(0)
        return None

    def index_for(self, role: AgentRole) -> int | None:
        """Who speaks next in a role; the roles before it lose their chance. None if nobody can."""
        while self._roles and self._roles[0] is not role:
            self._roles.pop(0)
        return self._of_role(role) if self._roles else None

    def spoke(self, index: int) -> None:
        """Note that somebody has had their chance in this turn."""
        self._silent.discard(id(self._parties[index]))

    def _begin(self) -> None:
        self._roles = list(AgentRole)
        # By identity: someone listed twice speaks once, and parties need not be hashable.
        self._silent = {id(participant) for participant in self._parties}

    def _of_role(self, role: AgentRole) -> int | None:
        for index, participant in enumerate(self._parties):
            if participant.role is role and id(participant) in self._silent:
                return index
        return None
