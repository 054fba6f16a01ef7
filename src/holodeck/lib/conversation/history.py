"""What was said, and what each party has not heard yet."""

from collections import defaultdict

from holodeck.lib.conversation.messages import copied
from holodeck.lib.conversation.roles import Message


class History:
    """The messages of a conversation, and a queue of unheard ones for each party."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._messages: list[Message] = []
        self._unheard: defaultdict[int, list[Message]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def messages(self) -> list[Message]:
        """A copy of all that was said."""
        return [copied(one) for one in self._messages]

    @property
    def peek(self) -> list[Message]:
        """All that was said itself, for reading only."""
        return self._messages

    def add(self, message: Message, author: int | None = None) -> None:
        """Note a message, and queue it for everybody but its author."""
        kept: Message = copied(message)
        self._messages.append(kept)
        for index in range(self._parties):
            if index != author:
                self._unheard[index].append(kept)

    def unheard(self, index: int) -> list[Message]:
        """A copy of what somebody has not heard yet."""
        return [copied(one) for one in self._unheard[index]]

    def heard(self, index: int, count: int) -> None:
        """Take the first messages off somebody's queue."""
        del self._unheard[index][:count]
