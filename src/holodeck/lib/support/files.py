"""Private files and folders, and file locks that end with their process."""

import fcntl
import logging
import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, unless they exist. Raises OSError."""
    try:
        folder.mkdir(FOLDER_MODE)
    except FileNotFoundError:
        make_folder(folder.parent)
        folder.mkdir(FOLDER_MODE, exist_ok=True)
    except OSError:
        if not folder.is_dir():
            raise


def open_file(path: Path, flags: int) -> int:
    """Open a file with the flags of `os.open`; create it if it is missing. Raises OSError."""
    return os.open(path, flags | os.O_CREAT, FILE_MODE)


def create_file(path: Path) -> None:
    """Create a file and its folder, unless it exists, for a library that would create it."""
    make_folder(path.parent)
    os.close(open_file(path, os.O_WRONLY))


def replace_file(path: Path, parts: Iterable[bytes], *, is_synced: bool = False) -> None:
    """Write a file so that others see the old one or the whole new one. Raises OSError.

    A file that exists keeps its permissions. With `is_synced`, a power cut loses neither.
    """
    make_folder(path.parent)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(parts)
            if is_synced:
                file.flush()
                os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            draft.chmod(stat.S_IMODE(path.stat().st_mode))
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


logger = logging.getLogger(__name__)


LOCK_S = 1800.0
"""How long a lock is waited for: another process may download gigabytes meanwhile."""
_POLL_SECONDS = 0.1
_own_locks: dict[Path, threading.Lock] = {}
_own_locks_lock = threading.Lock()


@contextmanager
def exclusive_lock(path: Path, reason: str, limit_s: float = LOCK_S) -> Iterator[None]:
    """Hold the lock file at `path`; while another process has it, wait and log the reason.

    Other threads of this process are waited for without a word. Raises TimeoutError if the lock is
    not free within `limit_s` seconds.
    """
    make_folder(path.parent)
    ends = time.monotonic() + limit_s
    with _own_locks_lock:
        between_threads = _own_locks.setdefault(path.resolve(), threading.Lock())
    if not between_threads.acquire(timeout=limit_s):
        raise _not_free(path, reason, limit_s)
    try:
        handle = open_file(path, os.O_RDWR)
        try:
            if not try_lock(handle):
                logger.warning("Waiting for another process: %s", reason)
                # Polling, unlike a blocking call, has a limit.
                while not try_lock(handle):
                    if time.monotonic() > ends:
                        raise _not_free(path, reason, limit_s)
                    time.sleep(_POLL_SECONDS)
            yield
        finally:
            os.close(handle)
    finally:
        between_threads.release()


def _not_free(path: Path, reason: str, limit_s: float) -> TimeoutError:
    return TimeoutError(f"{path} was locked for {limit_s:g} s ({reason})")


def claim(path: Path) -> int | None:
    """Lock the file at `path`, which `release` removes; None if somebody else has locked it.

    Works between the threads of a process and between processes.
    """
    handle = open_file(path, os.O_RDWR)
    if try_lock(handle) and _is_file_at(path, handle):
        return handle
    os.close(handle)
    return None


def release(path: Path, handle: int) -> None:
    """Remove a file that `claim` locked, and unlock it."""
    with suppress(OSError):
        path.unlink()
    os.close(handle)


def _is_file_at(path: Path, handle: int) -> bool:
    """Return whether it is still the open file that lies at the path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def try_lock(handle: int) -> bool:
    """Lock an open file until it is closed; return False if another process has locked it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system has no locks
        return True
    return True
