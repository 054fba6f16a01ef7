"""When Python collects garbage, and what of the user's code ends with the process."""

import atexit
import gc
import io
from contextlib import suppress

NEW_OBJECTS = 10_000
"""How many new objects cause a collection. Python's 700 are a few test cases, whose objects are
still needed."""
_WRITERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
_has_user_code = False


def collect_from_now_on() -> None:
    """Collect garbage, but nothing that exists by now: that lives until the exit."""
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    gc.enable()


def note_user_code() -> None:
    """Note that this process runs code of the user."""
    global _has_user_code  # noqa: PLW0603 - there is one process
    _has_user_code = True


def has_user_code() -> bool:
    """Return whether this process has run code of the user."""
    return _has_user_code


def prepare_exit() -> None:
    """Let Python end as fast as the user's code permits.

    An object of the user's may have to end in an orderly way, such as a file that was not closed;
    then all garbage is collected once. Otherwise, none is: searching the objects of a large library
    takes longer than the rest of the exit.
    """
    gc.disable()  # or Python would collect once more
    if _has_user_code:
        gc.unfreeze()
    else:
        gc.freeze()


def finish_user_code() -> None:
    """Do for the user's code what the end of Python would, in a process that ends without it.

    Functions of `atexit` run, and what was written to files that are still open is not lost.
    """
    if not _has_user_code:
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing does in its processes
    gc.unfreeze()
    for one in gc.get_objects():
        if type(one) in _WRITERS:
            with suppress(OSError, ValueError):  # closed, or a pipe that nobody reads
                one.flush()
