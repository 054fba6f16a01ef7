"""What was said, and what each party has not heard yet."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

from holodeck.lib.conversation.messages import copied
from holodeck.lib.conversation.roles import Message

Copy = Callable[[], Message]
"""What makes a copy of one message."""


class History:
    """The messages of a conversation, and a queue of unheard ones for each party.

    `before` is what all have heard before it began.
    """

    def __init__(self, participants: int, before: Sequence[Message] = ()) -> None:
        self._parties = participants
        self._messages: list[Message] = []
        self._copies: list[Copy] = []
        self._unheard: defaultdict[int, list[Copy]] = defaultdict(list)
        for one in before:
            self._keep(one)

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def messages(self) -> list[Message]:
        """A copy of all that was said."""
        return [copy() for copy in self._copies]

    @property
    def peek(self) -> list[Message]:
        """All that was said itself, for reading only."""
        return self._messages

    def add(self, message: Message, author: int | None = None) -> None:
        """Note a message, and queue it for everybody but its author."""
        copy = self._keep(message)
        for index in range(self._parties):
            if index != author:
                self._unheard[index].append(copy)

    def _keep(self, message: Message) -> Copy:
        kept: Message = copied(message)
        copy = _copy_of(kept)
        self._messages.append(kept)
        self._copies.append(copy)
        return copy

    def unheard(self, index: int) -> list[Message]:
        """A copy of what somebody has not heard yet."""
        return [copy() for copy in self._unheard[index]]

    def heard(self, index: int, count: int) -> None:
        """Take the first messages off somebody's queue."""
        del self._unheard[index][:count]


def _copy_of(message: Message) -> Copy:
    """Most messages hold nothing that can be changed, and everybody gets a copy of each."""
    is_flat = not any(isinstance(one, dict | list) for one in message.values())
    return message.copy if is_flat else partial(copied, message)
