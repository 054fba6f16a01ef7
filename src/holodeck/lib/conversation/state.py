"""The messages of a conversation, and what script steps and participants see of it."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from holodeck.errors import EvaluationError
from holodeck.lib.conversation.messages import (
    UNSEEN_CALLS,
    AgentRole,
    Message,
    deep_copy,
    tool_calls_in,
    tool_name,
    transcript_of,
)
from holodeck.lib.conversation.span_views import (
    contexts_of,
    shown_spans,
    spans_of,
    traces_of,
    with_span_calls,
)
from holodeck.lib.conversation.state_views import (
    ToolCall,
    ToolCalls,
    TraceView,
    TurnView,
    calls_in_messages,
    first_text,
    positions_of,
    turn_views,
)
from holodeck.lib.spans.store import SpanStore
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
        self._participants = participants
        self._messages: list[Message] = []
        self._copies: list[Callable[[], Message]] = []
        self._turns: list[int] = []
        self._followers: list[list[Message]] = []
        self._handed_over: dict[int, list[Callable[[], Message]]] = {}
        self._unread: defaultdict[int, list[Callable[[], Message]]] = defaultdict(list)
        for message in before:
            self._append(message, 0)

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def messages(self) -> list[Message]:
        """A copy of all messages."""
        return [copy() for copy in self._copies]

    @property
    def turns(self) -> Sequence[int]:
        """The turn of each message."""
        return self._turns

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
        copy = self._append(message, turn)
        for index in range(self._participants):
            if index != author:
                self._unread[index].append(copy)

    def _append(self, message: Message, turn: int) -> Callable[[], Message]:
        kept: Message = deep_copy(message)
        # Most messages hold nothing that can be changed, and every participant gets a copy of each.
        is_flat = not any(isinstance(value, dict | list) for value in kept.values())
        copy = kept.copy if is_flat else partial(deep_copy, kept)
        self._messages.append(kept)
        self._copies.append(copy)
        self._turns.append(turn)
        for messages in self._followers:
            messages.append(copy())
        return copy

    def rollback(self, index: int) -> list[Message]:
        """Remove all messages from a place on, for every participant; return them."""
        removed = self._messages[index:]
        for queue in self._unread.values():
            _remove(queue, self._copies[index:])
        for messages in self._followers:
            del messages[max(0, len(messages) - len(removed)) :]
        del self._messages[index:], self._copies[index:], self._turns[index:]
        return removed

    def unread_messages(self, index: int) -> list[Message]:
        """A copy of the messages that a participant has not been given yet."""
        self._handed_over[index] = list(self._unread[index])
        return [copy() for copy in self._unread[index]]

    def mark_read(self, index: int) -> None:
        """Take what `unread_messages` returned last off a participant's queue."""
        _remove(self._unread[index], self._handed_over.pop(index))


def _remove(queue: list[Callable[[], Message]], gone: Sequence[Callable[[], Message]]) -> None:
    ids = {id(copy) for copy in gone}
    queue[:] = [copy for copy in queue if id(copy) not in ids]


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
    def agents(self) -> Sequence[Any]: ...
    @property
    def fields(self) -> Mapping[str, Any]: ...
    @property
    def has_checkpoints(self) -> bool: ...
    @property
    def unseen_tool_calls(self) -> bool: ...
    @property
    def span_store(self) -> SpanStore | None: ...
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
        return spans_of(self.span_store)

    @property
    def traces(self) -> list[TraceView]:
        """The traces of the conversation, one for each turn."""
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
        messages, turns = self._messages_and_turns()
        calls, positions = self._calls(), self._positions_of_traces()
        traces = {
            positions.get(trace.id): trace
            for trace in traces_of(shown_spans(self.span_store), calls, positions)
        }
        views = turn_views(messages, turns, calls)
        return [replace(view, trace=traces.get(view.index)) for view in views]

    def _calls(self) -> list[ToolCall]:
        calls = calls_in_messages(*self._messages_and_turns())
        return with_span_calls(calls, self.span_store, self._positions_of_traces())

    def _positions_of_traces(self) -> dict[str, int]:
        turns = self._executor.history.turns
        positions = dict(zip(turns, positions_of(turns), strict=True))
        traces = {} if self.span_store is None else self.span_store.turns
        return {key: positions[turn] for key, turn in traces.items() if turn in positions}

    def _messages_and_turns(self) -> tuple[list[Message], list[int]]:
        history = self._executor.history
        return history.peek, positions_of(history.turns)

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
        messages = self._executor.history.peek
        if not messages:
            raise ValueError("there is no message yet")
        last: Message = deep_copy(messages[-1])
        return last

    def last_user_message(self) -> Message:
        """The latest message of the user. Raises ValueError if there is none."""
        for message in reversed(self._executor.history.peek):
            if message.get("role") == "user":
                copied: Message = deep_copy(message)
                return copied
        raise ValueError("there is no message of the user yet")

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
        for message in reversed(self._executor.history.peek):
            for call in _calls_of(message, tool_name):
                copied: dict[str, Any] = deep_copy(call)
                return copied
        self._warn_of_unseen_calls()
        return None

    def has_tool_call(self, tool_name: str) -> bool:
        """Whether the agent called a tool."""
        return self.last_tool_call(tool_name) is not None

    def tool_calls(self, tool_name: str | None = None) -> ToolCalls:
        """All calls of one tool or of any, oldest first, each with `input` and `output`.

        They come from messages, and from spans of tools.

        If there is none and the agent's tool calls are unknown, it warns; where the backend
        reported them as unknown, it raises EvaluationError.
        """
        calls = [call for call in self._calls() if tool_name in {None, call.name}]
        if not calls or any(message.get(UNSEEN_CALLS) for message in self._executor.history.peek):
            self._warn_of_unseen_calls()  # the calls of some turns are unknown, and so is a count
        return ToolCalls(calls, tool_name)

    def transcript(self) -> str:
        """The conversation as text, with tool calls and their results."""
        return transcript_of(self._executor.history.peek)

    def _warn_of_unseen_calls(self) -> None:
        if any(message.get(UNSEEN_CALLS) for message in self._executor.history.peek):
            raise EvaluationError(unknown_reason("tool_calls"))
        if self.unseen_tool_calls:
            warnings.warn(
                "whether the agent called tools is unknown, because it answered with a text; return"
                " messages, with 'tool_calls' in those that call tools",
                UserWarning,
                stacklevel=3,
            )


def _calls_of(message: Message, wanted: str | None) -> list[dict[str, Any]]:
    if message.get("role") != "assistant":
        return []
    return [call for call in tool_calls_in(message) if wanted is None or tool_name(call) == wanted]
