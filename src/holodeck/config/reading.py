"""Files of a configuration, as bytes."""

import stat
from pathlib import Path

from holodeck import errors
from holodeck.errors import ConfigError

MAX_BYTES = 20_000_000


def read_bytes(path: Path, name: str, limit: int = MAX_BYTES) -> bytes:
    """A regular file's content. Raises ConfigError for anything else, and beyond `limit`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(name, "is not a regular file")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise errors.FileNotFoundError(name, why_unreadable(error)) from error
    if len(data) > limit:
        raise ConfigError(
            name, f"is larger than {limit // 1_000_000} MB; split it or move the data elsewhere"
        )
    return data


def why_unreadable(error: OSError) -> str:
    """What keeps a file from being read, to stand after its name."""
    return f"cannot be read: {(error.strerror or str(error)).lower()}"
