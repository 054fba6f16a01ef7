"""Calling a party: in time, with its cost noted and its misuse told."""

import time
from collections.abc import Awaitable
from typing import Any

from holodeck.lib.conversation.ledger import Ledger
from holodeck.lib.conversation.limits import Clock
from holodeck.lib.conversation.misuse import Misuse
from holodeck.lib.conversation.spending import tallied
from holodeck.lib.conversation.types import AgentInput, Party


class Caller:
    """Calls the parties of one run.

    Args:
        clock: Where the time limits are noted.
        ledger: Where time and tokens are noted.
        seconds: That one call may take; None for no limit.
    """

    def __init__(self, clock: Clock, ledger: Ledger, seconds: float | None) -> None:
        self.waits_for: Party | None = None
        """Who has not answered, or never will, as something else came first."""
        self._clock = clock
        self._ledger = ledger
        self._seconds = seconds
        self._last_raised: tuple[Exception, Party] | None = None

    def author_of(self, error: BaseException) -> Party | None:
        """The party that raised it; None if it was a step, a callback or ourselves."""
        raised, party = self._last_raised or (None, None)
        return party if raised is error else None

    async def answer(self, index: int, party: Party, given: AgentInput, place: str) -> Any:
        """What the party returns. Raises Misuse, which names the place, and what it raises."""
        name = type(party).__name__
        self.waits_for = party
        started = time.perf_counter()
        with tallied() as tally:
            try:
                async with self._clock.limit(self._seconds, f"{place}: {name}.call"):
                    answer = await _awaitable(party.call(given), name)
            except Misuse as error:
                raise Misuse(place, str(error)) from error
            except Exception as error:
                self._last_raised = (error, party)
                raise
            finally:
                seconds = time.perf_counter() - started
                self._ledger.note(index, party.role, seconds, tally)
        self.waits_for = None
        return answer


def _awaitable(answer: Any, name: str) -> Awaitable[Any]:
    if not isinstance(answer, Awaitable):
        raise Misuse(f"{name}.call", "is not async; write `async def call`")
    return answer
