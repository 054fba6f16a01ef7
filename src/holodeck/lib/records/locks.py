"""Tells a run that goes on from one that was killed: the system drops a dead process's lock."""

import os
import sys

if sys.platform == "win32":
    import msvcrt

    _FAR_AWAY = 2**40  # a locked byte cannot be read, so one beyond the end is

    def lock(handle: int) -> bool:
        """Lock the open file for as long as it is open; false if another process has."""
        before = os.lseek(handle, 0, os.SEEK_CUR)
        os.lseek(handle, _FAR_AWAY, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(handle, before, os.SEEK_SET)
        return True

else:
    import fcntl

    def lock(handle: int) -> bool:
        """Lock the open file for as long as it is open; false if another process has."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
        return True
