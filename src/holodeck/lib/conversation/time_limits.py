"""Time limits that fire, also where somebody blocks the event loop meanwhile."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holodeck.errors import BackendTimeoutError
from holodeck.lib.limiter import time_limit


class TimeLimitExceeded(BackendTimeoutError):
    """A limit of the conversation itself is over; the message says which, and where."""


class TimeLimits:
    """The time limits under way in one run; may be read from another thread."""

    def __init__(self) -> None:
        self._running: list[tuple[time_limit, str]] = []

    @asynccontextmanager
    async def limit(self, seconds: float | None, what: str) -> AsyncIterator[None]:
        """End the block after so many seconds with OutOfTime; None for no limit.

        A block that held the loop for longer than that is too late, too.
        """
        message = f"{what} took more than {seconds:g} s" if seconds is not None else ""
        limit: time_limit | None = None
        try:
            async with time_limit(seconds) as limit:
                entry = (limit, message)
                self._running.append(entry)
                try:
                    yield
                finally:
                    self._running.remove(entry)
        except TimeoutError as error:
            if limit is None or not limit.expired():
                raise
            raise TimeLimitExceeded(message) from error

    def seconds_left(self) -> tuple[float, str] | None:
        """Until the next limit, and what is said when it is over; None if no limit is running."""
        left = [(_left(limit, float("inf")), message) for limit, message in [*self._running]]
        known = [one for one in left if one[0] != float("inf")]
        return min(known) if known else None


def _left(limit: time_limit, unlimited: float) -> float:
    ends = limit.when()
    return unlimited if ends is None else ends - time.monotonic()
