"""An end to what would take hours, however busy the machine is."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

CPU_S = 30.0
"""Far more than anything takes on a slow machine, and far less than what grows without bounds."""


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
