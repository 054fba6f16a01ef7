"""When Python collects garbage, and what of the user's code ends with the process."""

import atexit
import gc
import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_WRITERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
_has_user_code = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause garbage collection while a large library is imported.

    An import creates many objects and keeps them all; examining them again and again takes up to a
    third of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def note_user_code() -> None:
    """Note that this process runs code of the user."""
    global _has_user_code  # noqa: PLW0603 - there is one process
    _has_user_code = True


def finish_user_code() -> None:
    """Do for the user's code what the end of Python would, in a process that ends without it.

    Functions of `atexit` run, and what was written to files that are still open is not lost.
    """
    if not _has_user_code:
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing does in its processes
    for value in gc.get_objects():
        if type(value) in _WRITERS:
            with suppress(OSError, ValueError):  # closed, or a pipe that nobody reads
                value.flush()
