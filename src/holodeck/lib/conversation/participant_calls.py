"""Calling a party: in time, with its cost noted and its misuse told."""

import time
from collections.abc import Awaitable
from typing import Any

from holodeck.lib.conversation.call_usage import count_usage
from holodeck.lib.conversation.time_limits import TimeLimits
from holodeck.lib.conversation.types import AgentInput, Participant
from holodeck.lib.conversation.usage_error import ScenarioUsageError
from holodeck.lib.conversation.usage_meter import UsageMeter


class ParticipantCaller:
    """Calls the parties of one run.

    Args:
        clock: Where the time limits are noted.
        ledger: Where time and tokens are noted.
        seconds: That one call may take; None for no limit.
    """

    def __init__(self, clock: TimeLimits, usage_meter: UsageMeter, seconds: float | None) -> None:
        self.waits_for: Participant | None = None
        """Who has not answered, or never will, as something else came first."""
        self._clock = clock
        self._ledger = usage_meter
        self._seconds = seconds
        self._last_raised: tuple[Exception, Participant] | None = None

    def author_of(self, error: BaseException) -> Participant | None:
        """The party that raised it; None if it was a step, a callback or ourselves."""
        raised, participant = self._last_raised or (None, None)
        return participant if raised is error else None

    async def answer(
        self, index: int, participant: Participant, given: AgentInput, place: str
    ) -> Any:
        """Return what the participant returns. Raises ScenarioUsageError and what it raises."""
        name = type(participant).__name__
        self.waits_for = participant
        started = time.perf_counter()
        with count_usage() as tally:
            try:
                async with self._clock.limit(self._seconds, f"{place}: {name}.call"):
                    answer = await _awaitable(participant.call(given), name)
            except ScenarioUsageError as error:
                raise ScenarioUsageError(place, str(error)) from error
            except Exception as error:
                self._last_raised = (error, participant)
                raise
            finally:
                seconds = time.perf_counter() - started
                self._ledger.note(index, participant.role, seconds, tally)
        self.waits_for = None
        return answer


def _awaitable(answer: Any, name: str) -> Awaitable[Any]:
    if not isinstance(answer, Awaitable):
        raise ScenarioUsageError(f"{name}.call", "is not async; write `async def call`")
    return answer
