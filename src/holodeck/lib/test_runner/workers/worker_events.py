"""Events of the cases in workers: sent by the worker, published by the run.

A case has up to two streams of events: its own, and that of its conversation if that is shown. The
order within a case is that in which its worker sent them.
"""

import json
import logging
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from holodeck.lib.conversation.events import (
    TYPES,
    CriterionJudged,
    Event,
    EventDispatcher,
    EventStream,
    RunFinished,
    RunStarted,
    values_of,
)
from holodeck.lib.conversation.messages import Message as Spoken
from holodeck.lib.conversation.types import CriterionResult
from holodeck.lib.processes.channel import Head
from holodeck.lib.test_runner.events import (
    CaseResult,
    HasEvents,
    OnConversation,
    RunEvents,
    ended_by_error,
    own_batch,
)

logger = logging.getLogger(__name__)

OF_CASE, OF_CONVERSATION = "case", "conversation"
"""The streams."""
BEFORE = "before"
"""In the stream of a conversation, what comes first: the messages before it."""
_KINDS = {name: kind for kind, name in TYPES.items()}


class EventSender:
    """Sends the events of the cases of a worker.

    Args:
        send: Sends a message with its body.
        current_run: Returns the number of the run of a case that the present task belongs to.
    """

    def __init__(self, send: Callable[[Head, bytes], None], current_run: Callable[[], int]) -> None:
        self._send = send
        self._current_run = current_run

    def send_event(self, event: Event) -> None:
        """Send an event of the present case."""
        self._send_event(self._current_run(), OF_CASE, event)

    def follow(self, conversation: HasEvents) -> None:
        """Send the events of a conversation of the present case."""
        run = self._current_run()
        before = json.dumps(list(conversation.before), default=str).encode()
        self._send(["event", run, OF_CONVERSATION, BEFORE], before)
        conversation.events.relay(lambda event: self._send_event(run, OF_CONVERSATION, event))

    def _send_event(self, run: int, stream: str, event: Event) -> None:
        try:
            body = json.dumps(values_of(event), default=str).encode()
        except (TypeError, ValueError, RecursionError):  # of a message that the agent's code made
            logger.exception("%s cannot be sent to listeners", type(event).__name__)
            return
        self._send(["event", run, stream, TYPES[type(event)]], body)


@dataclass
class _RemoteConversation:
    """A conversation in a worker."""

    before: Sequence[Spoken]
    events: EventStream = field(default_factory=EventStream)


class FollowedRun:
    """Publishes the events of one run of a case that a worker runs.

    Args:
        events: Publishes the events of the case; None if nobody listens to them.
        on_conversation: Called with the conversation before it begins.
    """

    def __init__(
        self,
        events: RunEvents | None,
        on_conversation: OnConversation | None,
    ) -> None:
        self._events = events
        self._on_conversation = on_conversation
        self._conversation: EventDispatcher | None = None
        self._open: dict[str, RunStarted] = {}
        """What has begun but not ended, by its stream."""

    def handle(self, stream: str, kind: str, body: bytes) -> None:
        """Publish what a worker sent. Raises ValueError if it is no event."""
        if kind == BEFORE:
            self._begin_conversation(json.loads(body))
            return
        self._publish(stream, _event_of(kind, body))

    def _begin_conversation(self, before: list[Spoken]) -> None:
        if self._on_conversation is None:
            return
        conversation = _RemoteConversation(before)
        self._on_conversation(conversation)
        self._conversation = conversation.events.dispatcher()

    def _publish(self, stream: str, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._open[stream] = event
        if isinstance(event, RunFinished):
            self._open.pop(stream, None)
        if stream == OF_CASE and self._events is not None:
            self._events.publish(event)
        if stream == OF_CONVERSATION and self._conversation is not None:
            self._conversation.put(own_batch(event))

    async def close(self, error: BaseException | None = None) -> None:
        """Let the listeners of the conversation catch up, for a moment at most.

        What the worker began and did not end, ended by this error.
        """
        for stream, began in list(self._open.items()):
            self._publish(stream, ended_by_error(began, error or CancelledError()))
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            await conversation.drain()


def _event_of(kind: str, body: bytes) -> Event:
    """Return the event that was sent. Raises ValueError."""
    values: dict[str, Any] = json.loads(body)
    event_type = _KINDS.get(kind)
    if event_type is None or not values.keys() <= {key.name for key in fields(event_type)}:
        raise ValueError(f"no event: {kind!r}")
    try:
        if event_type is CriterionJudged:
            values["verdict"] = CriterionResult.model_validate(values["verdict"])
        if event_type is RunFinished:
            values["result"] = CaseResult.model_validate({"messages": [], **values["result"]})
        return event_type(**values)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no event: {kind!r} without a field") from error
