"""One process at a time: a lock that the system lets go of when its holder dies."""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1


@contextmanager
def exclusive_lock(path: Path, why: str) -> Iterator[None]:
    """Hold the lock file at `path`, waiting for it if need be; `why` says so in the log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _wait(handle, why)
        yield
    finally:
        os.close(handle)


def _wait(handle: int, why: str) -> None:
    if _taken(handle):
        return
    logger.warning("Waiting for another process: %s", why)
    # Asking again, unlike a blocking call, can be interrupted everywhere.
    while not _taken(handle):
        time.sleep(_POLL_SECONDS)


if sys.platform == "win32":
    import msvcrt

    def _taken(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _taken(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
