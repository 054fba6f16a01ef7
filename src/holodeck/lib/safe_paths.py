"""Keeps the paths of a configuration inside the agent's folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from holodeck import errors
from holodeck.lib.suggestions import did_you_mean

_may_leave: ContextVar[bool] = ContextVar("holodeck_paths_may_leave", default=False)


@contextmanager
def allow_outside(allowed: bool = True) -> Iterator[None]:
    """Allow paths outside of the agent's folder within the block.

    Only the command line or the caller may allow it, never a file or a variable of the folder.
    """
    token = _may_leave.set(allowed)
    try:
        yield
    finally:
        _may_leave.reset(token)


def file_inside(path: str | Path, folder: Path) -> Path:
    """Return the regular file at a path, relative to `folder`.

    Raises ConfigError if the file is missing, is not a regular file, or is outside of `folder`
    (also through `..` or a link) and `allow_outside` is not active.
    """
    try:
        file = (folder / path).resolve()
        inside = file.is_relative_to(folder.resolve())
        exists = file.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise errors.ConfigError(repr(str(path)), f"is not a usable path: {error}") from error
    if not (inside or _may_leave.get()):
        raise errors.ConfigError(
            str(path),
            f"lies outside of the agent's folder {folder}; copy it inside, or allow such paths with"
            " --allow-outside",
        )
    if not exists:
        names = [entry.name for entry in file.parent.iterdir()] if file.parent.is_dir() else []
        raise errors.FileNotFoundError(
            str(path), f"file not found in {folder}{did_you_mean(file.name, names)}"
        )
    if not file.is_file():
        raise errors.ConfigError(str(path), "is not a regular file")
    return file


def path_inside(path: str | Path, folder: Path) -> Path:
    """Return a path relative to `folder`, which need not exist, as an absolute path.

    Raises ConfigError if it is outside of `folder` and `allow_outside` is not active.
    """
    try:
        full = (folder / path).resolve()
        inside = full.is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError) as error:
        raise errors.ConfigError(repr(str(path)), f"is not a usable path: {error}") from error
    if not (inside or _may_leave.get()):
        raise errors.ConfigError(
            str(path),
            f"lies outside of the agent's folder {folder}; name a path inside, or allow such paths"
            " with --allow-outside",
        )
    return full


def is_file(path: Path) -> bool:
    """Whether the path is a regular file; False for a name that is too long."""
    try:
        return path.is_file()
    except OSError:
        return False
