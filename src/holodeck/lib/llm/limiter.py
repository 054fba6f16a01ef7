"""How many requests may be under way at one endpoint: found out while running.

A limiter starts with some slots and doubles them with every clean round until the endpoint first
says that it is too much; then it halves them, or leaves as many as got through where those were
fewer, and from there on grows by one a round, as TCP does. Where that was too much again, it stays
just below for longer and longer: each complaint costs a pause.
Waiting for a slot is nobody's latency: it stops the clock of `time_limit`, and callers get the
seconds they waited.
"""

import asyncio
import logging
import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary

logger = logging.getLogger(__name__)

INITIAL_SLOTS = 32
MAX_SLOTS = 100
GROWTH_INTERVAL_S = 0.05
"""Where somebody asked for so many at once, a start without a complaint for so long is clean."""
_PARTS = 10
PATIENCE = 8
"""Clean rounds just below what was too much, before that is tried again; doubles each time."""
MAX_PATIENCE = 1024
MAX_PAUSE_S = 60.0
"""Whoever is asked to wait longer fails instead; the others may find out for themselves."""


@dataclass
class Slot:
    """A place among the requests under way."""

    waited_s: float
    """Seconds until there was one."""
    era: int
    """How often the limiter had been cut down when it was given."""
    overloaded: bool = False
    """Whether the endpoint said that it is too much."""


class Limiter:
    """The slots of one endpoint, for one kind of work, on one event loop.

    Args:
        name: What messages call it.
        most: Slots there may be at most.
        first: Slots to start with.
        quiet_s: Seconds without a complaint after which there are four times as many slots, until
            the first complaint; None lets only answers count.
        clock: Seconds, for tests.
    """

    def __init__(
        self,
        name: str,
        most: int = MAX_SLOTS,
        first: int = INITIAL_SLOTS,
        quiet_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.most = most
        self.slots = min(first, most)
        self.under_way = 0
        self.peak = 0
        self._era = 0
        self._clean = 0
        self._wave = self._refused = 0
        self._ceiling = most
        self._patience = PATIENCE
        self._not_before = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._quiet_s = quiet_s
        self._listening: asyncio.TimerHandle | None = None

    def slot(self) -> AbstractAsyncContextManager[Slot]:
        """A slot for one request, in the order of asking; frees it however the block ends."""
        return _Stay(self)

    async def enter(self) -> Slot:
        """A slot, to be given back with `leave`; `slot` does both."""
        asked = self._clock()
        if self._waiting or not self._is_free():
            with pause_time_limits():
                await self._turn()
        else:
            self._enter()
        return Slot(self._clock() - asked, self._era)

    def leave(self, slot: Slot, *, failed: bool) -> None:
        """Give a slot back, and say whether the request failed."""
        self._leave(clean=not failed and not slot.overloaded and slot.era == self._era)

    def overloaded(self, slot: Slot, pause_s: float | None = None) -> None:
        """Halve the slots, and let nothing start for as long as the endpoint asked.

        Of several complaints about the same wave of requests only the first one halves; the others
        tell how many of the wave got through, which is the most that is kept.
        """
        slot.overloaded = True
        if pause_s is not None:
            self.hold(pause_s, "it asks for that")
        if slot.era == self._era:
            self._begin_wave()
        elif slot.era == self._era - 1:
            self._refused += 1
        else:
            return
        self._cut()

    def _cut(self) -> None:
        through = self._wave - self._refused
        # Where nothing gets through, it is not about how many come at once.
        self._ceiling = max(through, self._wave // 4, 1) if through > 0 else self._wave
        before, self.slots = self.slots, max(1, min(self._wave // 2, self._ceiling))
        if self.slots != before:
            logger.info("%s: %d → %d at once: it is too much for it", self.name, before, self.slots)

    def _begin_wave(self) -> None:
        tried_again = self.slots == self._ceiling + 1
        self._patience = min(MAX_PATIENCE, self._patience * 2) if tried_again else PATIENCE
        self._wave, self._refused = min(self.slots, self.under_way), 1
        self._era += 1
        self._clean = 0

    def hold(self, pause_s: float, reason: str) -> None:
        """Let nothing start for so many seconds; a pause that is too long is left to chance."""
        until = self._clock() + pause_s
        if pause_s > MAX_PAUSE_S or until <= self._not_before:
            return
        if until > self._not_before + 1 or self._not_before <= self._clock():  # else said already
            logger.info("%s: nothing new for %.2f s: %s", self.name, pause_s, reason)
        self._not_before = until

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._admit()
        self._listen()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # let in and cancelled in the same moment
                self._leave(clean=False)
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def _is_free(self) -> bool:
        return self.under_way < self.slots and self._clock() >= self._not_before

    def _enter(self) -> None:
        self.under_way += 1
        self.peak = max(self.peak, self.under_way)

    def _leave(self, *, clean: bool) -> None:
        self.under_way -= 1
        self._clean = self._clean + 1 if clean else 0
        rounds = self._patience if self.slots == self._ceiling else 1
        if self._clean >= self.slots * rounds and self.slots < self.most and self._waiting:
            self._grow()
        self._admit()

    def _grow(self) -> None:
        before = self.slots
        if before > self._ceiling:  # it is not too much any more
            self._ceiling = self.most
        self._grow_to(before * 2 if self._era == 0 else before + 1)

    def _grow_to(self, slots: int) -> None:
        before, self.slots = self.slots, min(self.most, slots)
        self._clean = 0
        logger.info("%s: %d → %d at once: all is well", self.name, before, self.slots)

    def _listen(self) -> None:
        """At the start, see in a moment whether there has been a complaint."""
        is_start = self._era == 0 and self.slots < self.most and self._waiting
        if self._quiet_s is not None and self._listening is None and is_start:
            self._listen_on(self._quiet_s / _PARTS, _PARTS)

    def _listen_on(self, part_s: float, parts: int) -> None:
        """In parts, between which a busy loop gets to read what has come."""
        if parts > 0:
            loop = asyncio.get_running_loop()
            self._listening = loop.call_later(part_s, self._listen_on, part_s, parts - 1)
            return
        self._listening = None
        if self._era == 0 and self.slots < self.most and self._clock() >= self._not_before:
            self._grow_to(self.slots * 4)
            self._admit()
            self._listen()

    def _admit(self) -> None:
        """Let those in who came first, as far as there is room; come back when a pause ends."""
        while self._waiting and self._is_free():
            turn = self._waiting.popleft()
            if not turn.done():
                self._enter()
                turn.set_result(None)
        pause = self._not_before - self._clock()
        if self._waiting and pause > 0 and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(pause, self._pause_over)

    def _pause_over(self) -> None:
        self._timer = None
        self._admit()


class _Stay:
    """A slot for as long as the block takes; a class, as a generator takes three times as long."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    async def __aenter__(self) -> Slot:
        self._slot = await self._limiter.enter()
        return self._slot

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._limiter.leave(self._slot, failed=error is not None)


_limits: ContextVar[tuple[asyncio.Timeout, ...]] = ContextVar("holodeck_time_limits", default=())


class time_limit:  # noqa: N801 - used like `asyncio.timeout`
    """`asyncio.timeout`, whose clock stands still while the block waits for a slot.

    A block that held the event loop, so that nothing could end it in time, is too late all the
    same.
    """

    def __init__(self, seconds: float | None) -> None:
        self._limit = asyncio.timeout(seconds)
        self._is_late = False

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        self._token = _limits.set((*_limits.get(), self._limit))
        return self

    def when(self) -> float | None:
        """When the time is over, by the loop's clock; None for no limit, and while it stands."""
        return self._limit.when()

    def expired(self) -> bool:
        """Whether it was over before the block was done."""
        return self._is_late or self._limit.expired()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _limits.reset(self._token)
        await self._limit.__aexit__(kind, error, trace)
        ends = self._limit.when()
        if kind is None and ends is not None and asyncio.get_running_loop().time() > ends:
            self._is_late = True
            raise TimeoutError


@contextmanager
def pause_time_limits() -> Iterator[None]:
    """Let no time pass meanwhile for the `time_limit` blocks around."""
    now = asyncio.get_running_loop().time
    running = [(limit, limit.when()) for limit in _limits.get() if not limit.expired()]
    left = [(limit, ends - now()) for limit, ends in running if ends is not None]
    for limit, _ in left:
        limit.reschedule(None)
    try:
        yield
    finally:
        for limit, seconds in left:
            limit.reschedule(now() + seconds)


class Limiters:
    """The limiters of a run, one for each endpoint, key and kind of work, on each event loop."""

    def __init__(
        self, most: int = MAX_SLOTS, first: int = INITIAL_SLOTS, quiet_s: float | None = None
    ) -> None:
        self.most = most
        self._first = first
        self._quiet_s = quiet_s
        self._of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Limiter]] = (
            WeakKeyDictionary()
        )
        self._reached: set[str] = set()

    def note_reached(self, endpoint: str) -> None:
        """Take note that the endpoint answered, whatever it said."""
        self._reached.add(endpoint)

    def was_reached(self, endpoint: str) -> bool:
        """Whether the endpoint has answered anything in this run."""
        return endpoint in self._reached

    def of(self, endpoint: str, kind: str = "agent") -> Limiter:
        """The limiter of an endpoint (say URL and a hash of the key) for a kind of work."""
        known = self._of_loop.setdefault(asyncio.get_running_loop(), {})
        name = f"{kind} {endpoint}"
        if name not in known:
            known[name] = Limiter(name, self.most, self._first, self._quiet_s)
        return known[name]


_OPENAI = [
    (f"x-ratelimit-remaining-{of}", f"x-ratelimit-reset-{of}") for of in ("requests", "tokens")
]
_ANTHROPIC = [
    (f"anthropic-ratelimit-{of}-remaining", f"anthropic-ratelimit-{of}-reset")
    for of in ("requests", "tokens", "input-tokens", "output-tokens")
]
HEADERS = (*_OPENAI, *_ANTHROPIC, ("ratelimit-remaining", "ratelimit-reset"))
"""What is left of a limit, and when it is there again."""

_UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "": 1.0}
_DURATION = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ms|[dhms]))+|[0-9]{1,9}(?:\.[0-9]{1,9})?")
_PART = re.compile(r"([0-9.]+)(ms|[dhms]?)")


def _now() -> datetime:
    return datetime.now(UTC)


def apply_rate_limits(
    limiter: Limiter, headers: Mapping[str, str], now: Callable[[], datetime] = _now
) -> None:
    """Let no new request start while the headers of an answer say that none is left.

    The names of the headers are in lower case, or their case does not matter.
    """
    for remaining, reset in HEADERS:
        left = headers.get(remaining)
        if left is not None and left.strip() == "0":
            seconds = seconds_until(headers.get(reset, ""), now)
            if seconds is not None:
                limiter.hold(seconds, f"{remaining} is 0")


def seconds_until(reset: str, now: Callable[[], datetime] = _now) -> float | None:
    """Seconds that `20ms`, `6m0s`, `1.5` or a date stands for; None if it makes no sense."""
    text = reset.strip().lower()
    if _DURATION.fullmatch(text):
        return math.fsum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    try:
        date = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (aware - now()).total_seconds())
