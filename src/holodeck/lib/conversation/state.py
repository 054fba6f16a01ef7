"""What steps of a script and the parties see of a running conversation."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from holodeck.errors import EvaluationError
from holodeck.lib.conversation.messages import (
    UNSEEN_CALLS,
    Message,
    calls_in,
    copied,
    tool_name,
    transcript_of,
)
from holodeck.models.evidence import unknown_reason

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


class RunningConversation(Protocol):
    """The conversation behind a state."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def config(self) -> Any: ...
    @property
    def thread_id(self) -> str: ...
    @property
    def current_turn(self) -> int: ...
    @property
    def history(self) -> History: ...
    @property
    def has_checkpoints(self) -> bool: ...
    @property
    def unseen_tool_calls(self) -> bool: ...
    def add_message(self, message: Mapping[str, Any]) -> None: ...


class ScenarioState:
    """The conversation as it stands. What it hands out are copies; add_message() is what adds."""

    def __init__(self, conversation: RunningConversation) -> None:
        self._executor = conversation

    def __repr__(self) -> str:
        return (
            f"ScenarioState(thread_id={self.thread_id!r}, current_turn={self.current_turn},"
            f" messages={len(self._executor.history)})"
        )

    @property
    def description(self) -> str:
        """The situation."""
        return self._executor.description

    @property
    def config(self) -> Any:
        """The settings of the run."""
        return self._executor.config

    @property
    def thread_id(self) -> str:
        """One for each run."""
        return self._executor.thread_id

    @property
    def current_turn(self) -> int:
        """The turn under way; the first one is 0."""
        return self._executor.current_turn

    @property
    def has_checkpoints(self) -> bool:
        """Whether a step of the script may ask the judge by criteria of its own."""
        return self._executor.has_checkpoints

    @property
    def messages(self) -> list[Message]:
        """All that was said."""
        return self._executor.history.messages

    def add_message(self, message: Mapping[str, Any]) -> None:
        """Add a message that everybody hears."""
        self._executor.add_message(message)

    def last_message(self) -> Message:
        """The latest message. Raises ValueError if nothing was said yet."""
        said = self._executor.history.peek
        if not said:
            raise ValueError("nothing was said yet")
        found: Message = copied(said[-1])
        return found

    def last_user_message(self) -> Message:
        """The latest message of the user. Raises ValueError if there is none."""
        return self._last("user")

    def last_agent_message(self) -> Message:
        """The latest message of the agent. Raises ValueError if there is none."""
        return self._last("assistant")

    @property
    def unseen_tool_calls(self) -> bool:
        """Whether an agent answered with a bare text, so that its tool calls are unknown."""
        return self._executor.unseen_tool_calls

    def last_tool_call(self, tool_name: str) -> dict[str, Any] | None:
        """The call of a tool in the latest message that calls it; None if none does.

        Warns if none is found and the tool calls of the agent are unknown; raises EvaluationError
        if a backend said so.
        """
        for message in reversed(self._executor.history.peek):
            for call in _calls_of(message, tool_name):
                found: dict[str, Any] = copied(call)
                return found
        self._warn_of_unseen_calls()
        return None

    def has_tool_call(self, tool_name: str) -> bool:
        """Whether the agent called a tool."""
        return self.last_tool_call(tool_name) is not None

    def tool_calls(self, tool_name: str | None = None) -> list[dict[str, Any]]:
        """All calls, of one tool or of any, the first one first."""
        said = self._executor.history.peek
        found = [copied(call) for one in said for call in _calls_of(one, tool_name)]
        if not found or any(one.get(UNSEEN_CALLS) for one in said):
            self._warn_of_unseen_calls()  # of some turns the calls are unknown, so a count is, too
        return found

    def transcript(self) -> str:
        """The conversation as text, with tool calls and their results."""
        return transcript_of(self._executor.history.peek)

    def _warn_of_unseen_calls(self) -> None:
        if any(one.get(UNSEEN_CALLS) for one in self._executor.history.peek):
            raise EvaluationError(unknown_reason("tool_calls"))
        if self.unseen_tool_calls:
            warnings.warn(
                "whether the agent called tools is unknown, because it answered with a text; return"
                " messages, with 'tool_calls' in those that call tools",
                UserWarning,
                stacklevel=3,
            )

    def _last(self, role: str) -> Message:
        for message in reversed(self._executor.history.peek):
            if message.get("role") == role:
                found: Message = copied(message)
                return found
        raise ValueError(f"there is no message of the {role} yet")


def _calls_of(message: Message, wanted: str | None) -> list[dict[str, Any]]:
    if message.get("role") != "assistant":
        return []
    return [one for one in calls_in(message) if wanted is None or tool_name(one) == wanted]
