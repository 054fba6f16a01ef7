"""Events of conversations, and their delivery to listeners, which cannot disturb a run."""

import errno
import json
import logging
import os
import queue
import secrets
import string
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import monotonic, time
from typing import Any

from pydantic import BaseModel

from holodeck.errors import ConfigError
from holodeck.lib.conversation.types import CriterionResult, ScenarioResult
from holodeck.lib.processes.threads import join_at_exit, run_in_thread
from holodeck.lib.support.files import open_file
from holodeck.models.cases.messages import Message

logger = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""How long the end of a run waits for its listeners."""
_ID_LETTERS = string.ascii_letters + string.digits
_NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)
"""Opening a pipe without a reader fails instead of waiting."""


def new_id(kind: str) -> str:
    """Return a unique id such as `thread_4fT…`."""
    return f"{kind}_{''.join(secrets.choice(_ID_LETTERS) for _ in range(22))}"


BATCH_RUN_ID = new_id("scenariobatch")
"""The id that all runs of this process share."""


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
    agent_name: str | None = None
    """The name in the agent.yaml; None where there is no agent.yaml."""
    case_id: str | None = None
    """The `id` of the test case; None if it has none."""
    run_id: str | None = None
    """The record of `holodeck test`; None if there is none."""


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """A run has begun."""

    name: str
    description: str
    thread_id: str
    metadata: Mapping[str, Any] | None = None
    """What the run was given as its metadata."""


@dataclass(frozen=True, kw_only=True)
class MessageAdded(Event):
    """A message was added to the conversation."""

    index: int
    """Its place among the messages of the run, from 0. A place that comes again takes back the
    message that had it, and all after it."""
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


TYPES: dict[type[Event], str] = {
    RunStarted: "run_started",
    MessageAdded: "message",
    CriterionJudged: "criterion",
    RunFinished: "run_finished",
}
"""The `type` of each event in a file."""

Listener = Callable[[Event], None]


class EventStream:
    """The listeners of a conversation."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._relays: list[Listener] = []

    def relay(self, to: Listener) -> None:
        """Pass every event from now on to a listener that never waits nor fails; no thread."""
        self._relays.append(to)

    def subscribe(self, on_next: Listener) -> "Subscription":
        """Call a listener with every event from now on; calling what it returns ends that."""
        self._listeners.append(on_next)
        return Subscription(self._listeners, on_next)

    def dispatcher(self) -> "EventDispatcher":
        """Return what delivers the events of a run."""
        return EventDispatcher(
            [ListenerThread(listener) for listener in self._listeners], tuple(self._relays)
        )


@dataclass(frozen=True)
class Subscription:
    """A listener's subscription to events."""

    _listeners: list[Listener]
    _listener: Listener

    def dispose(self) -> None:
        """End it."""
        if self._listener in self._listeners:
            self._listeners.remove(self._listener)

    __call__ = dispose


class EventDispatcher:
    """Delivers the events of a run to listeners, each in a thread of its own."""

    def __init__(self, threads: "list[ListenerThread]", relays: Sequence[Listener] = ()) -> None:
        self._threads = threads
        self._relays = relays

    @property
    def is_idle(self) -> bool:
        """Whether there is no listener."""
        return not self._threads and not self._relays

    def put(self, event: Event) -> None:
        """Send an event to all listeners."""
        for relay in self._relays:
            relay(event)
        for thread in self._threads:
            thread.queue.put(event)

    async def catch_up(self) -> None:
        """Wait, no longer than PATIENCE_S, until the listeners have got all events so far."""
        marks = [threading.Event() for _ in self._threads]
        for thread, mark in zip(self._threads, marks, strict=True):
            thread.queue.put(mark)
        await _wait_for_all([mark.wait for mark in marks])

    def close(self) -> None:
        """End the delivery after the events so far, without waiting."""
        self._relays = ()
        for thread in self._threads:
            thread.queue.put(None)
            join_at_exit(thread.thread)

    async def drain(self) -> None:
        """Close, and wait no longer than PATIENCE_S until the listeners have got all events."""
        self.close()
        await _wait_for_all([thread.thread.join for thread in self._threads])


async def _wait_for_all(waits: Sequence[Callable[[float], object]]) -> None:
    """Wait for all of these, together no longer than PATIENCE_S."""
    if not waits:
        return
    ends = monotonic() + PATIENCE_S

    def wait() -> None:
        for wait_until in waits:
            wait_until(max(0.0, ends - monotonic()))

    await run_in_thread(wait)


class ListenerThread:
    """Calls a listener with events in their order; if it hangs, the others go on."""

    def __init__(self, listener: Listener) -> None:
        self.queue: queue.SimpleQueue[Event | threading.Event | None] = queue.SimpleQueue()
        self._listener = listener
        self.thread = threading.Thread(target=self._work, name="holodeck-events", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while (event := self.queue.get()) is not None:
            if isinstance(event, threading.Event):  # a mark that `catch_up` waits for
                event.set()
                continue
            try:
                self._listener(event)
            except Exception:
                logger.exception("a listener failed at %s", type(event).__name__)


Clean = Callable[[dict[str, Any]], dict[str, Any]]


class EventFile:
    """A listener that appends each event to a file as a line of JSON.

    Args:
        path: The file; runs and processes may share it.
        clean: Hides secrets in the values of an event; None hides none.
        location: What configures the file, for the error.

    Raises:
        ConfigError: The file cannot be written.
    """

    def __init__(self, path: Path, clean: Clean | None = None, location: str = "events") -> None:
        self._path = path
        self._clean = clean
        self._has_failed = False
        try:
            os.close(self._open(_NONBLOCK))
        except OSError as error:
            raise ConfigError(location, f"cannot write to {path}: {error.strerror}") from error

    def __call__(self, event: Event) -> None:
        line = line_of(event, self._clean).encode(errors="backslashreplace")
        try:
            # One write to a file opened for appending keeps the lines of several writers whole.
            file = self._open()
            try:
                if os.write(file, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(file)
        except OSError as error:
            if not self._has_failed:
                logger.error("events are missing from %s: %s", self._path, error)  # noqa: TRY400
            self._has_failed = True

    def _open(self, flags: int = 0) -> int:
        return open_file(self._path, os.O_WRONLY | os.O_APPEND | flags)


def line_of(event: Event, clean: Clean | None = None) -> str:
    """Return an event as a line of JSON; of results without the messages, which have events."""
    values = values_of(event)
    if clean is not None:
        values = clean(values)
    return (
        json.dumps({"type": TYPES[type(event)], **values}, ensure_ascii=False, default=str) + "\n"
    )


def values_of(event: Event) -> dict[str, Any]:
    """Return the fields of an event that have a value, results as mappings without messages."""
    values = {column.name: getattr(event, column.name) for column in fields(event)}
    return {
        name: value.model_dump(mode="json", exclude={"messages"})
        if isinstance(value, BaseModel)
        else value
        for name, value in values.items()
        if value is not None
    }
