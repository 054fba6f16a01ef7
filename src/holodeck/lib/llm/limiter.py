"""Concurrency and rate limits: how many requests may be in flight at one endpoint.

A limiter starts with some slots and doubles them with every clean round, until the endpoint first
reports an overload. Then it halves them, or keeps as many as got through if those were fewer, and
grows by one per round from there on, as TCP does. After a second overload at the same number it
stays just below for longer and longer, since each overload costs a pause.

An endpoint that queues requests reports no overload. Where the user named no number, there are more
than SAFE_SLOTS only while responses take about as long as in the first round.

Waiting for a slot counts for no latency: it stops the clock of `time_limit`, and callers learn how
many seconds they waited.
"""

import asyncio
import logging
import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary

from holodeck.lib.ui.activity import activity

logger = logging.getLogger(__name__)

INITIAL_SLOTS = 50
SAFE_SLOTS = 100
MAX_SLOTS = 200
QUEUEING = 1.5
"""An endpoint that takes so many times as long as in the first round seems to queue requests."""
GROWTH_INTERVAL_S = 0.05
"""With a given `--parallel`, the slots grow after this time at the start without an overload."""
_INTERVAL_PARTS = 10
PATIENCE = 8
"""Clean rounds just below an overload before the next growth; doubles with each overload."""
MAX_PATIENCE = 1024
MAX_PAUSE_S = 60.0
"""A request that is asked to wait longer fails; other requests are still sent."""


@dataclass
class Slot:
    """A place among the requests in flight."""

    waited_s: float
    """Seconds until the slot was free."""
    era: int
    """Number of overloads before the slot was given."""
    began: float
    """When it was given, by the limiter's clock."""
    overloaded: bool = False
    """Whether the endpoint reported an overload for its request."""


class Limiter:
    """The slots of one endpoint, for one kind of work, on one event loop.

    Args:
        name: The name in log messages.
        max_slots: Most slots there can be.
        initial_slots: Slots at the start.
        growth_interval_s: Seconds without an overload after which there are four times as many
            slots, until the first overload; with None, only responses count.
        clock: Returns seconds; for tests.
    """

    def __init__(
        self,
        name: str,
        max_slots: int = MAX_SLOTS,
        initial_slots: int = INITIAL_SLOTS,
        growth_interval_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.max_slots = max_slots
        self.slots = min(initial_slots, max_slots)
        self.in_flight = 0
        self.peak = 0
        self._era = 0
        self._start_round()
        self._first_mean_s: float | None = None
        """Mean seconds of a response in the first clean round; None before its end."""
        self._wave = self._refused = 0
        """Requests in flight at the last overload, and how many of them were refused."""
        self._ceiling = max_slots
        """The number of slots that is just below the last overload."""
        self._patience = PATIENCE
        self._not_before = 0.0
        """When a pause ends."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._clock = clock
        self._pause_timer: asyncio.TimerHandle | None = None
        self._growth_interval_s = growth_interval_s
        self._growth_timer: asyncio.TimerHandle | None = None

    def slot(self) -> AbstractAsyncContextManager[Slot]:
        """Return a context that holds a slot; the first to enter gets the first free slot."""
        return _SlotContext(self)

    async def enter(self) -> Slot:
        """Return a slot, to be given back with `leave`; `slot` does both."""
        free = self.enter_now()
        if free is not None:
            return free
        started = self._clock()
        with self._displayed_wait(), pause_time_limits():
            await self._wait_for_slot()
        began = self._clock()
        return Slot(began - started, self._era, began)

    def enter_now(self) -> Slot | None:
        """Return a slot like `enter`; None if the caller would have to wait."""
        if self._waiting or not self._has_free_slot():
            return None
        self._take_slot()
        return Slot(0.0, self._era, self._clock())

    def _displayed_wait(self) -> AbstractContextManager[None]:
        """Return a context during which the progress display shows what the slot waits for."""
        pause_s = self._not_before - self._clock()
        if pause_s > 0:
            timed = "waiting {time} for the rate limit"
            return activity("waiting for the rate limit", timed=timed, seconds=pause_s)
        return activity("waiting for the rate limit" if self._era else "waiting for other requests")

    def leave(self, slot: Slot, *, failed: bool) -> None:
        """Give a slot back."""
        is_clean = not failed and not slot.overloaded and slot.era == self._era
        self._free_slot(self._clock() - slot.began if is_clean else None)

    def note_overload(self, slot: Slot, pause_s: float | None = None) -> None:
        """Halve the slots, and start no request for as long as the endpoint asks.

        Only the first overload of a wave of requests halves; the others tell how many requests of
        the wave got through, which is the most that is kept.
        """
        slot.overloaded = True
        if pause_s is not None:
            self.pause(pause_s, "the endpoint asks for it")
        if slot.era == self._era:
            is_second = self.slots == self._ceiling + 1
            self._patience = min(MAX_PATIENCE, self._patience * 2) if is_second else PATIENCE
            self._wave, self._refused = min(self.slots, self.in_flight), 1
            self._era += 1
            self._start_round()
        elif slot.era == self._era - 1:
            self._refused += 1
        else:
            return
        self._shrink()

    def pause(self, pause_s: float, reason: str) -> None:
        """Start no request for so many seconds; a pause over MAX_PAUSE_S is ignored."""
        until = self._clock() + pause_s
        if pause_s > MAX_PAUSE_S or until <= self._not_before:
            return
        is_news = until > self._not_before + 1 or self._not_before <= self._clock()
        if is_news:
            logger.info("%s: no new requests for %.2f s: %s", self.name, pause_s, reason)
        self._not_before = until

    def _start_round(self) -> None:
        """Count clean responses in a row, and the seconds that they take together, from zero."""
        self._clean, self._clean_s = 0, 0.0

    def _shrink(self) -> None:
        succeeded = self._wave - self._refused
        # If no request gets through, their number is not the cause.
        self._ceiling = max(succeeded, self._wave // 4, 1) if succeeded > 0 else self._wave
        before, self.slots = self.slots, max(1, min(self._wave // 2, self._ceiling))
        if self.slots != before:
            logger.info("%s: %d → %d slots after an overload", self.name, before, self.slots)

    def _grow(self, slots: int) -> None:
        before, self.slots = self.slots, min(self.max_slots, slots)
        self._start_round()
        if self.slots != before:
            logger.info("%s: %d → %d slots", self.name, before, self.slots)

    def _grow_after_round(self) -> None:
        """Grow; beyond SAFE_SLOTS only if the endpoint does not seem to queue."""
        mean_s = self._clean_s / self._clean
        if self._first_mean_s is None:
            self._first_mean_s = mean_s
        slots = self.slots * 2 if self._era == 0 else self.slots + 1
        may_queue = self.slots < SAFE_SLOTS or mean_s > self._first_mean_s * QUEUEING
        if may_queue and self._growth_interval_s is None:
            slots = max(self.slots, min(slots, SAFE_SLOTS))
        self._grow(slots)

    async def _wait_for_slot(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._admit()
        self._schedule_growth()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # admitted and cancelled at the same moment
                self._free_slot()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def _has_free_slot(self) -> bool:
        return self.in_flight < self.slots and self._clock() >= self._not_before

    def _take_slot(self) -> None:
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)

    def _free_slot(self, clean_s: float | None = None) -> None:
        """Free a slot after a clean response of so many seconds; None if there was none."""
        self.in_flight -= 1
        if clean_s is None:
            self._start_round()
        else:
            self._clean += 1
            self._clean_s += clean_s
        rounds = self._patience if self.slots == self._ceiling else 1
        if self._clean >= self.slots * rounds and self.slots < self.max_slots and self._waiting:
            if self.slots > self._ceiling:  # the endpoint accepts more than at the last overload
                self._ceiling = self.max_slots
            self._grow_after_round()
        self._admit()

    def _schedule_growth(self) -> None:
        """At the start, grow after an interval without an overload."""
        can_grow = self._era == 0 and self.slots < self.max_slots and self._waiting
        if self._growth_interval_s is not None and self._growth_timer is None and can_grow:
            self._grow_later(self._growth_interval_s / _INTERVAL_PARTS, _INTERVAL_PARTS)

    def _grow_later(self, part_s: float, parts: int) -> None:
        """Wait in parts, so that a busy event loop reads responses in between."""
        if parts > 0:
            loop = asyncio.get_running_loop()
            self._growth_timer = loop.call_later(part_s, self._grow_later, part_s, parts - 1)
            return
        self._growth_timer = None
        if self._era == 0 and self.slots < self.max_slots and self._clock() >= self._not_before:
            self._grow(self.slots * 4)
            self._admit()
            self._schedule_growth()

    def _admit(self) -> None:
        """Give free slots to the first in line; try again when a pause ends."""
        while self._waiting and self._has_free_slot():
            turn = self._waiting.popleft()
            if not turn.done():
                self._take_slot()
                turn.set_result(None)
        pause = self._not_before - self._clock()
        if self._waiting and pause > 0 and self._pause_timer is None:
            self._pause_timer = asyncio.get_running_loop().call_later(pause, self._end_pause)

    def _end_pause(self) -> None:
        self._pause_timer = None
        self._admit()


class _SlotContext:
    """A slot for as long as the block takes; a class, as a generator takes three times as long."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    async def __aenter__(self) -> Slot:
        self._slot = await self._limiter.enter()
        return self._slot

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._limiter.leave(self._slot, failed=error is not None)


_time_limits: ContextVar[tuple[asyncio.Timeout, ...]] = ContextVar(
    "holodeck_time_limits", default=()
)


class time_limit:  # noqa: N801 - used like `asyncio.timeout`
    """`asyncio.timeout`, whose clock stops while the block waits for a slot.

    A block that blocked the event loop past its limit raises TimeoutError, too.
    """

    def __init__(self, seconds: float | None) -> None:
        self._limit = asyncio.timeout(seconds)
        self._is_late = False

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        self._token = _time_limits.set((*_time_limits.get(), self._limit))
        return self

    def when(self) -> float | None:
        """Return when the time is up, by the loop's clock; None without a limit or when paused."""
        return self._limit.when()

    def expired(self) -> bool:
        """Whether the time was up before the block ended."""
        return self._is_late or self._limit.expired()

    def paused(self) -> AbstractContextManager[None]:
        """Return a context during which the clock stands still."""
        return _paused([self._limit])

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _time_limits.reset(self._token)
        await self._limit.__aexit__(kind, error, trace)
        ends = self._limit.when()
        if kind is None and ends is not None and asyncio.get_running_loop().time() > ends:
            self._is_late = True
            raise TimeoutError


def pause_time_limits() -> AbstractContextManager[None]:
    """Stop the clocks of the `time_limit` blocks around for the time of the block."""
    return _paused(_time_limits.get())


@contextmanager
def _paused(limits: Iterable[asyncio.Timeout]) -> Iterator[None]:
    now = asyncio.get_running_loop().time
    running = [(limit, limit.when()) for limit in limits if not limit.expired()]
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
        self,
        max_slots: int = MAX_SLOTS,
        initial_slots: int = INITIAL_SLOTS,
        growth_interval_s: float | None = None,
    ) -> None:
        self._max_slots = max_slots
        self._initial_slots = initial_slots
        self._growth_interval_s = growth_interval_s
        self._limiters: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Limiter]] = (
            WeakKeyDictionary()
        )
        self._reached: set[str] = set()
        self._down: set[str] = set()

    def note_reached(self, endpoint: str) -> None:
        """Remember that the endpoint answered, whatever it answered."""
        self._reached.add(endpoint)

    def note_down(self, endpoint: str) -> None:
        """Remember that all attempts to connect to the endpoint failed."""
        self._down.add(endpoint)

    def was_down(self, endpoint: str) -> bool:
        """Whether a request has already tried in vain to connect to the endpoint."""
        return endpoint in self._down and endpoint not in self._reached

    def was_reached(self, endpoint: str) -> bool:
        """Whether the endpoint has answered anything in this run."""
        return endpoint in self._reached

    def of(self, endpoint: str, kind: str = "agent") -> Limiter:
        """Return the limiter of an endpoint (URL and a hash of the key) for a kind of work."""
        known = self._limiters.setdefault(asyncio.get_running_loop(), {})
        name = f"{kind} {endpoint}"
        if name not in known:
            known[name] = Limiter(
                name, self._max_slots, self._initial_slots, self._growth_interval_s
            )
        return known[name]


_OPENAI_HEADERS = [
    (f"x-ratelimit-remaining-{unit}", f"x-ratelimit-reset-{unit}")
    for unit in ("requests", "tokens")
]
_ANTHROPIC_HEADERS = [
    (f"anthropic-ratelimit-{unit}-remaining", f"anthropic-ratelimit-{unit}-reset")
    for unit in ("requests", "tokens", "input-tokens", "output-tokens")
]
RATE_LIMIT_HEADERS = (
    *_OPENAI_HEADERS,
    *_ANTHROPIC_HEADERS,
    ("ratelimit-remaining", "ratelimit-reset"),
)
"""Headers with what is left of a limit, and with the time until it is reset."""

_UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "": 1.0}
_DURATION = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ms|[dhms]))+|[0-9]{1,9}(?:\.[0-9]{1,9})?")
_DURATION_PART = re.compile(r"([0-9.]+)(ms|[dhms]?)")


def _now() -> datetime:
    return datetime.now(UTC)


def apply_rate_limits(
    limiter: Limiter, headers: Mapping[str, str], now: Callable[[], datetime] = _now
) -> None:
    """Pause the limiter if the headers of a response say that nothing is left of a limit.

    The names of the headers are in lower case, or the mapping ignores case.
    """
    for remaining, reset in RATE_LIMIT_HEADERS:
        left = headers.get(remaining)
        if left is not None and left.strip() == "0":
            seconds = seconds_until(headers.get(reset, ""), now)
            if seconds is not None:
                limiter.pause(seconds, f"{remaining} is 0")


def seconds_until(reset: str, now: Callable[[], datetime] = _now) -> float | None:
    """Return the seconds that `20ms`, `6m0s`, `1.5` or a date stands for; None if unreadable."""
    text = reset.strip().lower()
    if _DURATION.fullmatch(text):
        parts = _DURATION_PART.findall(text)
        return math.fsum(float(number) * _UNITS[unit] for number, unit in parts)
    try:
        date = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (aware - now()).total_seconds())
