"""The messages of a conversation, and what script steps and participants see of it."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from holodeck.errors import EvaluationError
from holodeck.lib.conversation.messages import AgentRole, deep_copy, transcript_of
from holodeck.lib.conversation.state_views import (
    ToolCall,
    ToolCalls,
    TraceView,
    TurnView,
    calls_in_messages,
    calls_of,
    contexts_of,
    first_text,
    shown_spans,
    traces_of,
    with_span_calls,
)
from holodeck.lib.spans.evidence import reason_for_no_spans
from holodeck.lib.spans.store import SpanStore, is_ours
from holodeck.models.cases.messages import Message, tool_calls_in
from holodeck.models.cases.messages import tool_name as name_of
from holodeck.models.results.evidence import unknown_reason

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


class History:
    """The messages of a conversation, and a queue of unread ones for each participant.

    Args:
        participants: How many there are.
        before: Messages from before the conversation, which no participant gets as new.
    """

    def __init__(self, participants: int, before: Sequence[Message] = ()) -> None:
        self._messages: list[Message] = deep_copy(list(before))
        self._turns = [0] * len(self._messages)
        self._followers: list[list[Message]] = []
        self._unread: list[list[Message]] = [[] for _ in range(participants)]
        self._handed_over: dict[int, list[Message]] = {}

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def messages(self) -> list[Message]:
        """A copy of all messages."""
        copied: list[Message] = deep_copy(self._messages)
        return copied

    @property
    def turns(self) -> Sequence[int]:
        """The turn of each message."""
        return self._turns

    @property
    def positions(self) -> list[int]:
        """The position of each message's turn among the turns that have messages."""
        known = {turn: position for position, turn in enumerate(dict.fromkeys(self._turns))}
        return [known[turn] for turn in self._turns]

    @contextmanager
    def follow(self) -> Iterator[list[Message]]:
        """Yield a copy of all messages that grows and shrinks with them inside the block."""
        messages = self.messages
        self._followers.append(messages)
        try:
            yield messages
        finally:
            self._followers = [follower for follower in self._followers if follower is not messages]

    @property
    def peek(self) -> list[Message]:
        """All messages themselves, for reading only."""
        return self._messages

    def add(self, message: Message, author: int | None = None, turn: int = 0) -> None:
        """Add a message, and queue it for every participant but its author."""
        message = deep_copy(message)
        self._messages.append(message)
        self._turns.append(turn)
        for messages in self._followers:
            messages.append(deep_copy(message))
        for index, queue in enumerate(self._unread):
            if index != author:
                queue.append(message)

    def rollback(self, index: int) -> list[Message]:
        """Remove all messages from a place on, for every participant; return them."""
        removed = self._messages[index:]
        for queue in self._unread:
            _remove(queue, removed)
        for messages in self._followers:
            del messages[max(0, len(messages) - len(removed)) :]
        del self._messages[index:], self._turns[index:]
        return removed

    def unread_messages(self, index: int) -> list[Message]:
        """A copy of the messages that a participant has not been given yet."""
        self._handed_over[index] = list(self._unread[index])
        copied: list[Message] = deep_copy(self._unread[index])
        return copied

    def mark_read(self, index: int) -> None:
        """Take what `unread_messages` returned last off a participant's queue."""
        _remove(self._unread[index], self._handed_over.pop(index))


def _remove(queue: list[Message], gone: Sequence[Message]) -> None:
    ids = {id(message) for message in gone}
    queue[:] = [message for message in queue if id(message) not in ids]


class RunningConversation(Protocol):
    """The conversation behind a state."""

    description: str
    config: Any
    history: History
    agents: list[Any]
    fields: Mapping[str, Any]
    has_checkpoints: bool
    unseen_tool_calls: bool
    span_store: SpanStore | None

    @property
    def thread_id(self) -> str: ...
    @property
    def current_turn(self) -> int: ...
    def add_message(self, message: Mapping[str, Any]) -> None: ...
    def rollback_messages_to(self, index: int) -> list[Message]: ...


class ScenarioState:
    """The conversation so far. What it returns are copies; add_message() adds to it."""

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
        """The id of this run's conversation."""
        return self._executor.thread_id

    @property
    def current_turn(self) -> int:
        """The number of the current turn, counted from 0."""
        return self._executor.current_turn

    @property
    def has_checkpoints(self) -> bool:
        """Whether a step of the script may give the judge criteria of its own."""
        return self._executor.has_checkpoints

    @property
    def messages(self) -> list[Message]:
        """All messages."""
        return self._executor.history.messages

    @property
    def span_store(self) -> SpanStore | None:
        """The collected spans and what could not be seen; None if nothing is collected."""
        return self._executor.span_store

    @property
    def spans(self) -> list[ReadableSpan]:
        """The OpenTelemetry spans of this conversation that have ended, oldest first.

        If none can be collected in this process, it warns.
        """
        spans = shown_spans(self.span_store)
        if all(map(is_ours, spans)) and (reason := reason_for_no_spans(self.span_store)):
            message = f"whether the agent made spans is unknown: {reason}"
            warnings.warn(message, UserWarning, stacklevel=3)
        return spans

    @property
    def traces(self) -> list[TraceView]:
        """The traces of the conversation: each turn has its own."""
        return traces_of(self.spans, self._calls(), self._positions_of_traces())

    @property
    def contexts(self) -> list[str]:
        """The texts that the agent retrieved, from the spans of retrievals."""
        return contexts_of(self.spans)

    @property
    def fields(self) -> dict[str, Any]:
        """The values that the scenario carries next to its description."""
        return dict(self._executor.fields)

    def field(self, name: str) -> Any:
        """One of the fields; None if the scenario has none of this name, or leaves it empty."""
        value = self.fields.get(name)
        return None if isinstance(value, str) and not value else value

    @property
    def criteria(self) -> list[str]:
        """The criteria of all judges."""
        judges = (agent for agent in self._executor.agents if agent.role is AgentRole.JUDGE)
        return [text for judge in judges for text in getattr(judge, "criteria", None) or ()]

    @property
    def turns(self) -> list[TurnView]:
        """The turns that have messages, each with its messages and tool calls."""
        history, grouped = self._executor.history, defaultdict[int, list[Message]](list)
        for message, position in zip(history.messages, history.positions, strict=True):
            grouped[position].append(message)
        calls, positions = self._calls(), self._positions_of_traces()
        traces = {
            positions.get(trace.id): trace
            for trace in traces_of(shown_spans(self.span_store), calls, positions)
        }
        return [
            TurnView(
                index,
                messages,
                tuple(call for call in calls if call.turn == index),
                traces.get(index),
            )
            for index, messages in grouped.items()
        ]

    def _calls(self) -> list[ToolCall]:
        history = self._executor.history
        calls = calls_in_messages(history.peek, history.positions)
        return with_span_calls(calls, self.span_store, self._positions_of_traces())

    def _positions_of_traces(self) -> dict[str, int]:
        history = self._executor.history
        positions = dict(zip(history.turns, history.positions, strict=True))
        traces = {} if self.span_store is None else self.span_store.turns
        return {key: positions[turn] for key, turn in traces.items() if turn in positions}

    def add_message(self, message: Mapping[str, Any]) -> None:
        """Add a message for all participants."""
        self._executor.add_message(message)

    def rollback_messages_to(self, index: int) -> list[Message]:
        """Remove the messages from a place on, as if they had never been written; return them.

        Raises ValueError if the index is negative.
        """
        return self._executor.rollback_messages_to(index)

    def last_message(self) -> Message:
        """The latest message. Raises ValueError if there is none yet."""
        messages = self.messages
        if not messages:
            raise ValueError("there is no message yet")
        return messages[-1]

    def last_user_message(self) -> Message:
        """The latest message of the user. Raises ValueError if there is none."""
        messages = [message for message in self.messages if message["role"] == "user"]
        if not messages:
            raise ValueError("there is no message of the user yet")
        return messages[-1]

    def last_agent_message(self) -> str:
        """The text of the agent's latest message; empty if there is none."""
        return first_text(reversed(self._executor.history.peek), "assistant")

    def first_user_message(self) -> str:
        """The text of the user's first message; empty if there is none."""
        return first_text(self._executor.history.peek, "user")

    @property
    def unseen_tool_calls(self) -> bool:
        """Whether an agent answered with a bare text, so that its tool calls are unknown."""
        return self._executor.unseen_tool_calls

    def last_tool_call(self, tool_name: str) -> dict[str, Any] | None:
        """The call of a tool in the latest message that calls it; None if no message does.

        If there is none and the agent's tool calls are unknown, it warns; where the backend
        reported them as unknown, it raises EvaluationError.
        """
        for message in reversed(self.messages):
            if message.get("role") == "assistant":
                for call in tool_calls_in(message):
                    if name_of(call) == tool_name:
                        return call
        self._warn_of_unseen_calls()
        return None

    def has_tool_call(self, tool_name: str) -> bool:
        """Whether the agent called a tool."""
        return self.last_tool_call(tool_name) is not None

    def tool_calls(self, tool_name: str | None = None) -> ToolCalls:
        """All calls of a tool or of any, oldest first, each with `input` and `output`.

        They come from messages, and from spans of tools.

        If there is none and the agent's tool calls are unknown, it warns; where the backend
        reported them as unknown, it raises EvaluationError.
        """
        calls = calls_of(self._calls(), tool_name)
        if not calls or self._has_unseen_calls:
            self._warn_of_unseen_calls()  # the calls of some turns are unknown, and so is a count
        return calls

    def transcript(self) -> str:
        """The conversation as text, with tool calls and their results."""
        return transcript_of(self._executor.history.peek)

    @property
    def _has_unseen_calls(self) -> bool:
        return any(message.get("unseen_tool_calls") for message in self._executor.history.peek)

    def _warn_of_unseen_calls(self) -> None:
        if self._has_unseen_calls:
            raise EvaluationError(unknown_reason("tool_calls"))
        if self.unseen_tool_calls:
            warnings.warn(
                "whether the agent called tools is unknown, because it answered with a text; return"
                " messages, with 'tool_calls' in those that call tools",
                UserWarning,
                stacklevel=3,
            )
