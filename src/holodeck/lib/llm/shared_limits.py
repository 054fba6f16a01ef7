"""Limits that worker processes share: the parent has the limiters, the workers ask it for slots.

So several processes together send no more requests than one would: the same slots, the same pauses
after an overload, whichever process heard of it.
"""

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any

from holodeck.lib.llm.limiter import Limiter, Limiters, Slot, pause_time_limits

SLOT_MESSAGES = ("enter", "leave", "overload", "pause")
"""The kinds of messages that `SlotsOfWorker` handles."""
Send = Callable[[list[Any]], None]
"""Sends a message, which can be written as JSON, to the process at the other end."""


class SharedSlot(Slot):
    """A slot that the parent gave; it knows the slot by its number."""

    def __init__(self, number: int, waited_s: float) -> None:
        super().__init__(waited_s, era=0, began=0.0)
        self.number = number


class SharedLimiter(Limiter):
    """The limiter of an endpoint, as a worker sees it: each decision is the parent's."""

    def __init__(self, endpoint: str, kind: str, limits: "SharedLimiters") -> None:
        super().__init__(f"{kind} {endpoint}")
        self._key = (endpoint, kind)
        self._limits = limits

    async def enter(self) -> Slot:
        """Return a slot once the parent has given one; the wait counts for no time limit."""
        started = time.monotonic()
        with pause_time_limits():
            number = await self._limits.ask_for_slot(*self._key)
        return SharedSlot(number, time.monotonic() - started)

    def leave(self, slot: Slot, *, failed: bool) -> None:
        """Give a slot back."""
        self._limits.send(["leave", _number(slot), failed])

    def note_overload(self, slot: Slot, pause_s: float | None = None) -> None:
        """Tell the parent that the endpoint reported an overload."""
        slot.overloaded = True
        self._limits.send(["overload", _number(slot), pause_s])

    def pause(self, pause_s: float, reason: str) -> None:
        """Ask the parent to start no request for so many seconds."""
        self._limits.send(["pause", *self._key, pause_s, reason])


def _number(slot: Slot) -> int:
    assert isinstance(slot, SharedSlot)  # noqa: S101 - `enter` above returns nothing else
    return slot.number


class SharedLimiters(Limiters):
    """The limiters of a worker; one set serves its agent, its judges and all else.

    Args:
        send: Sends a message to the parent.
        current_run: Returns the number of the run of a case that the present task belongs to.
    """

    def __init__(self, send: Send, current_run: Callable[[], int]) -> None:
        super().__init__()
        self.send = send
        self._current_run = current_run
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._shared: dict[tuple[str, str], SharedLimiter] = {}

    def of(self, endpoint: str, kind: str = "agent") -> Limiter:
        """Return the limiter of an endpoint for a kind of work."""
        known = self._shared.get((endpoint, kind))
        if known is None:
            known = self._shared[endpoint, kind] = SharedLimiter(endpoint, kind, self)
        return known

    async def ask_for_slot(self, endpoint: str, kind: str) -> int:
        """Return the number of a slot once the parent has given it."""
        number = next(self._numbers)
        turn = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.send(["enter", number, endpoint, kind, self._current_run()])
        try:
            await turn
        except asyncio.CancelledError:
            self.send(["leave", number, True])
            raise
        finally:
            del self._waiting[number]
        return number

    def give_slot(self, number: int) -> None:
        """Let the request go on that asked for that slot, unless it was cancelled meanwhile."""
        turn = self._waiting.get(number)
        if turn is not None and not turn.done():
            turn.set_result(None)

    def note_reached(self, endpoint: str) -> None:
        """Remember, and tell the other workers, that the endpoint answered."""
        if endpoint not in self._reached:
            self.send(["reached", endpoint])
        super().note_reached(endpoint)

    def note_down(self, endpoint: str) -> None:
        """Remember, and tell the other workers, that no attempt to connect succeeded."""
        if endpoint not in self._down:
            self.send(["down", endpoint])
        super().note_down(endpoint)

    def handle(self, kind: str, endpoint: str) -> None:
        """Remember what another worker noted: `reached` or `down`."""
        (self._reached if kind == "reached" else self._down).add(endpoint)


class SlotsOfWorker:
    """The parent's side: the slots that one worker has or waits for.

    Args:
        limiters: The limiters of the run.
        send: Sends a message to the worker.
    """

    def __init__(self, limiters: Limiters, send: Send) -> None:
        self._limiters = limiters
        self._send = send
        self._held: dict[int, tuple[Limiter, Slot]] = {}
        self._waiting: dict[int, asyncio.Task[None]] = {}

    def handle(self, message: list[Any]) -> None:
        """Do what the worker asks for; the wait for a slot belongs to the present context."""
        match message:
            case ["enter", number, endpoint, kind, _]:
                self._enter(number, self._limiters.of(endpoint, kind))
            case ["leave", number, failed]:
                self._leave(number, failed=failed)
            case ["overload", number, pause_s] if number in self._held:
                limiter, slot = self._held[number]
                limiter.note_overload(slot, pause_s)
            case ["pause", endpoint, kind, pause_s, reason]:
                self._limiters.of(endpoint, kind).pause(pause_s, reason)

    def _enter(self, number: int, limiter: Limiter) -> None:
        free = limiter.enter_now()
        if free is not None:
            self._give(number, limiter, free)
            return
        task = self._waiting[number] = asyncio.create_task(self._wait(number, limiter))
        task.add_done_callback(lambda _: self._waiting.pop(number, None))

    async def _wait(self, number: int, limiter: Limiter) -> None:
        self._give(number, limiter, await limiter.enter())

    def _give(self, number: int, limiter: Limiter, slot: Slot) -> None:
        self._held[number] = limiter, slot
        self._send(["slot", number])

    def _leave(self, number: int, *, failed: bool) -> None:
        """Take a slot back, or a place in the line."""
        waiting = self._waiting.get(number)
        if waiting is not None:
            waiting.cancel()
        held = self._held.pop(number, None)
        if held is not None:
            limiter, slot = held
            limiter.leave(slot, failed=failed)

    async def close(self) -> None:
        """Take back all slots of a worker that has ended."""
        waiting = list(self._waiting.values())
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for number in list(self._held):
            self._leave(number, failed=True)
