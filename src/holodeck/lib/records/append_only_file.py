"""A file that lines are appended to and that loses none of them, whatever becomes of the run."""

import errno
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from holodeck.lib.file_lock import try_lock

logger = logging.getLogger(__name__)

SYNC_SECONDS = 0.05
"""Lines of so much time share one trip to the disk, which only a power cut makes matter."""


class AppendOnlyFile:
    """One new file. A line is with the system when `append` returns, so killing loses nothing.

    A line that cannot be written is kept in memory, like those after it, and tried again at the
    end; `trouble` says why.
    """

    def __init__(self, path: Path, sync: Callable[[int], None] = os.fsync) -> None:
        """`sync` takes a file to the disk. Raises OSError if the file exists or cannot be made."""
        self.path = path
        self.trouble: str | None = None
        self._sync = sync
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        try_lock(self._handle)
        self._size = 0
        self._unwritten: list[bytes] = []
        self._dirty, self._closing = threading.Event(), threading.Event()
        self._syncer = threading.Thread(target=self._keep_synced, name="record", daemon=True)
        self._syncer.start()

    def append(self, lines: bytes) -> None:
        """Write whole lines; a failure is told once and does not raise."""
        if not self._unwritten:
            try:
                self._write(lines)
            except OSError as error:
                self._note(error.strerror or type(error).__name__)
            else:
                return
        self._unwritten.append(lines)

    def close(self) -> None:
        """Write what is left and wait for the disk."""
        if self._unwritten:
            with suppress(OSError):
                self._write(b"".join(self._unwritten))
                self.trouble = None
                logger.warning("%s: could be written after all", self.path)
        self._closing.set()
        self._dirty.set()
        self._syncer.join()
        os.close(self._handle)

    def _write(self, data: bytes) -> None:
        """Write all of it, or leave the file as it was."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self._handle, data[written:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            raise
        self._size += written
        self._dirty.set()

    def _keep_synced(self) -> None:
        while not self._closing.is_set():
            self._dirty.wait()
            self._dirty.clear()
            self._sync_once()
            self._closing.wait(SYNC_SECONDS)
        self._sync_once()

    def _sync_once(self) -> None:
        try:
            self._sync(self._handle)
            gone = os.fstat(self._handle).st_nlink == 0
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # a pipe, or a simple file system
                self._note(error.strerror or type(error).__name__)
        else:
            if gone:
                self._note("it was removed while the run went on")

    def _note(self, reason: str) -> None:
        if self.trouble is None:
            self.trouble = reason
            logger.error("the record cannot be kept: %s: %s", self.path, reason)
