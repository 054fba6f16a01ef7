"""Files and folders that only the user can read: records, reports, events and caches.

They hold conversations, and other users of a machine could read what a usual umask permits.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
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
    # Imported here because many commands write no file.
    import tempfile  # noqa: PLC0415

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
        os.replace(draft, path)  # noqa: PTH105 - the one that replaces on every system
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
