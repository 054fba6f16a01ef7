"""Who wants to know what happens: told of it in order, and unable to harm the run."""

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, time

from holodeck.lib.conversation.roles import Message
from holodeck.lib.conversation.types import CriterionResult, ScenarioResult
from holodeck.lib.threads import see_off

logger = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""How long the end of a run waits for its listeners."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in a run."""

    batch_run_id: str
    scenario_run_id: str
    scenario_id: str
    """The name of the scenario."""
    scenario_set_id: str
    timestamp: int = field(default_factory=lambda: int(time() * 1000))
    """Milliseconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """A run has begun."""

    name: str
    description: str
    thread_id: str


@dataclass(frozen=True, kw_only=True)
class MessageAdded(Event):
    """Somebody said something."""

    index: int
    """Its place among the messages of the run, from 0."""
    message: Message
    turn: int


@dataclass(frozen=True, kw_only=True)
class CriterionJudged(Event):
    """A judge decided about a criterion."""

    verdict: CriterionResult


@dataclass(frozen=True, kw_only=True)
class RunFinished(Event):
    """A run has ended."""

    status: str
    """`SUCCESS`, `FAILED`, `ERROR` or `CANCELLED`."""
    result: ScenarioResult


Listener = Callable[[Event], None]


class EventStream:
    """The listeners of one executor."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell a listener of every event from now on; gives what unsubscribes it again."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def outbox(self) -> "Outbox":
        """What carries the events of one run."""
        return Outbox([Mailer(one) for one in self._listeners])


class Outbox:
    """Carries the events of one run to those who listen, each in a thread of its own."""

    def __init__(self, mailers: "list[Mailer]") -> None:
        self._mailers = mailers

    @property
    def is_idle(self) -> bool:
        """Whether nobody listens."""
        return not self._mailers

    def put(self, event: Event) -> None:
        """Send an event on its way."""
        for mailer in self._mailers:
            mailer.events.put(event)

    def catch_up(self) -> None:
        """Wait until everybody was told all that has happened so far, but not for ever."""
        ends = monotonic() + PATIENCE_S
        for mailer in self._mailers:
            told = threading.Event()
            mailer.events.put(told)
            told.wait(max(0.0, ends - monotonic()))

    def close(self) -> "list[threading.Thread]":
        """Let no more events follow; gives the threads that still deliver."""
        for mailer in self._mailers:
            mailer.events.put(None)
            see_off(mailer.thread)
        return [mailer.thread for mailer in self._mailers]


class Mailer:
    """Tells one listener of events in their order; whoever hangs hangs alone."""

    def __init__(self, listener: Listener) -> None:
        self.events: queue.SimpleQueue[Event | threading.Event | None] = queue.SimpleQueue()
        self._listener = listener
        self.thread = threading.Thread(target=self._work, name="holodeck-events", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while (event := self.events.get()) is not None:
            if isinstance(event, threading.Event):  # somebody waits for this place in the queue
                event.set()
                continue
            try:
                self._listener(event)
            except Exception:
                logger.exception("a listener failed at %s", type(event).__name__)
