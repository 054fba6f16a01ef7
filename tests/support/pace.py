"""What takes far too long, and what ends it, however busy the machine is."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

CPU_S = 30.0
"""Far more than anything takes on a slow machine, and far less than what grows without bounds."""


class Hang:
    """Holds whoever calls it, or awaits `later`, until the test is over; the `hang` fixture."""

    LONGEST_S = 60.0

    def __init__(self) -> None:
        self.begun = threading.Event()
        self._over = threading.Event()
        self.was_waited_for = False

    def __call__(self, *_: object) -> None:
        self.begun.set()
        self.was_waited_for |= not self._over.wait(self.LONGEST_S)

    async def later(self, *_: object) -> None:
        self.begun.set()
        await asyncio.sleep(self.LONGEST_S)
        self.was_waited_for = True

    def let_go(self) -> None:
        self._over.set()


@contextmanager
def bounded_work() -> Iterator[None]:
    """Ends the block with AssertionError after half a minute of the processor in this process."""

    def stop(*_: object) -> None:
        raise AssertionError(f"{CPU_S:g} s of the processor were not enough")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
