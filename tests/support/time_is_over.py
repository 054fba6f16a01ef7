"""The end of a case's time, brought about at a moment of the test's choosing."""

import asyncio

from holodeck.lib.llm import limiter


def end_the_case() -> None:
    """Let the time limit of the case under way be over now, however long it is."""
    outermost = limiter._time_limits.get()[0]
    outermost.reschedule(asyncio.get_running_loop().time())
