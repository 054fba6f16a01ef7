"""Paths of the configuration: relative to the agent.yaml, and never outside of its folder."""

from pathlib import Path

from holodeck import errors
from holodeck.config.nodes import short
from holodeck.config.reading import read_bytes
from holodeck.config.syntax import decode
from holodeck.errors import ConfigError
from holodeck.lib.safe_paths import file_inside
from holodeck.lib.suggestions import did_you_mean


def inside(path: str | Path, base_dir: Path, where: str) -> Path:
    """The file that `path` means, seen from `base_dir`; `where` opens the messages.

    Raises FileNotFoundError, and ConfigError for what leads outside or is no regular file.
    """
    try:
        return file_inside(path, base_dir)
    except errors.FileNotFoundError as error:
        raise errors.FileNotFoundError(where, f"{short(str(path))}: {error.message}") from error
    except ConfigError as error:
        raise ConfigError(where, f"{short(str(path))} {error.message}") from error


def text_of(path: str | Path, base_dir: Path, where: str) -> str:
    """The text of a file beside the agent.yaml. Raises ConfigError, FileNotFoundError."""
    return decode(read_bytes(inside(path, base_dir, where), where), str(path))


def nearest(path: Path, *patterns: str) -> str:
    """`; did you mean 'x'?` for the file whose name is most alike; empty if none is."""
    folder = path.parent
    if not folder.is_dir():
        return ""
    names = [
        child.name
        for pattern in patterns or ("*",)
        for child in folder.glob(pattern)
        if child.is_file()
    ]
    return did_you_mean(path.name, names)
