"""Who wants to know what happens: told of it in order, and unable to harm the run."""

import errno
import json
import logging
import os
import queue
import secrets
import string
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import monotonic, time
from typing import Any

from pydantic import BaseModel

from holodeck.errors import ConfigError
from holodeck.lib.conversation.messages import Message
from holodeck.lib.conversation.types import CriterionResult, ScenarioResult
from holodeck.lib.threads import join_at_exit, run_in_thread

logger = logging.getLogger(__name__)

_ID_LETTERS = string.ascii_letters + string.digits
PATIENCE_S = 1.0
"""How long the end of a run waits for its listeners."""


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
    """The agent whose case it is; None where no agent.yaml tells its name."""
    case_id: str | None = None
    """The `id` of the case; None where it has none."""
    run_id: str | None = None
    """The record of `holodeck test`; None where none is kept."""


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
        self._relays: list[Listener] = []

    def relay(self, to: Listener) -> None:
        """Hand every event from now on to somebody who never waits nor fails, without a thread."""
        self._relays.append(to)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell a listener of every event from now on; gives what unsubscribes it again."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def dispatcher(self) -> "EventDispatcher":
        """What carries the events of one run."""
        return EventDispatcher(
            [ListenerThread(one) for one in self._listeners], tuple(self._relays)
        )


class EventDispatcher:
    """Carries the events of one run to those who listen, each in a thread of its own."""

    def __init__(self, mailers: "list[ListenerThread]", relays: Sequence[Listener] = ()) -> None:
        self._mailers = mailers
        self._relays = relays

    @property
    def is_idle(self) -> bool:
        """Whether nobody listens."""
        return not self._mailers and not self._relays

    def put(self, event: Event) -> None:
        """Send an event on its way."""
        for relay in self._relays:
            relay(event)
        for mailer in self._mailers:
            mailer.events.put(event)

    async def catch_up(self) -> None:
        """Wait until everybody was told all that has happened so far, but not for ever."""
        told = [threading.Event() for _ in self._mailers]
        for mailer, one in zip(self._mailers, told, strict=True):
            mailer.events.put(one)
        await _each([one.wait for one in told])

    def close(self) -> None:
        """Let no more events follow, and wait for nobody."""
        self._relays = ()
        for mailer in self._mailers:
            mailer.events.put(None)
            join_at_exit(mailer.thread)

    async def delivered(self) -> None:
        """Let no more events follow, and let the listeners hear all of them, but not for ever."""
        self.close()
        await _each([mailer.thread.join for mailer in self._mailers])


async def _each(waits: Sequence[Callable[[float], object]]) -> None:
    """Wait for all of these together no longer than our patience lasts."""
    if not waits:
        return
    ends = monotonic() + PATIENCE_S

    def wait() -> None:
        for one in waits:
            one(max(0.0, ends - monotonic()))

    await run_in_thread(wait)


class ListenerThread:
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


Clean = Callable[[dict[str, Any]], dict[str, Any]]
_AT_ONCE: int = getattr(os, "O_NONBLOCK", 0)
"""A pipe that nobody reads from is refused and not waited for."""

TYPES: dict[type[Event], str] = {
    RunStarted: "run_started",
    MessageAdded: "message",
    CriterionJudged: "criterion",
    RunFinished: "run_finished",
}
"""What each event is called in a line."""


class EventFile:
    """A listener that appends each event to a file, as one line that is written at once.

    Args:
        path: The file; it may be shared by runs and by processes.
        clean: What hides secrets in the values of an event; None hides none.
        where: What names the file, for the error.

    Raises:
        ConfigError: It cannot be written.
    """

    def __init__(self, path: Path, clean: Clean | None = None, where: str = "events") -> None:
        self._path = path
        self._clean = clean
        self._is_broken = False
        try:
            os.close(self._opened(_AT_ONCE))
        except OSError as error:
            raise ConfigError(where, f"cannot be written to {path}: {error.strerror}") from error

    def __call__(self, event: Event) -> None:
        line = line_of(event, self._clean).encode(errors="backslashreplace")
        try:
            self._append(line)
        except OSError as error:
            if not self._is_broken:
                logger.error("events are missing from %s: %s", self._path, error)  # noqa: TRY400
            self._is_broken = True

    def _append(self, line: bytes) -> None:
        # One write of a file opened for appending, so that lines of several writers stay whole.
        file = self._opened()
        try:
            if os.write(file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)

    def _opened(self, flags: int = 0) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | flags, 0o666)


def line_of(event: Event, clean: Clean | None = None) -> str:
    """An event as a line of JSON; a result stands in it without the messages, told before."""
    given = {one.name: getattr(event, one.name) for one in fields(event)}
    values = {name: _json(value) for name, value in given.items() if value is not None}
    if clean is not None:
        values = clean(values)
    return json.dumps({"type": TYPES[type(event)], **values}, ensure_ascii=False) + "\n"


def _json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude={"messages"})
    return value
