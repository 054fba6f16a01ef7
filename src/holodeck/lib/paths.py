"""Paths that a configuration names."""

import difflib
from pathlib import Path

from holodeck import errors


def file_inside(path: str | Path, folder: Path) -> Path:
    """The regular file that a path names; a relative one starts from `folder`.

    Raises ConfigError if the file is missing, is no regular file, or lies outside of `folder`,
    be it through `..` or through a link.
    """
    try:
        file = (folder / path).resolve()
        inside = file.is_relative_to(folder.resolve())
        exists = file.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise errors.ConfigError(repr(str(path)), f"is not a usable path: {error}") from error
    if not inside:
        raise errors.ConfigError(
            str(path), f"lies outside of the agent's folder {folder}; copy it inside"
        )
    if not exists:
        raise errors.FileNotFoundError(
            str(path), f"there is no such file in {folder}{_nearest(file)}"
        )
    if not file.is_file():
        raise errors.ConfigError(str(path), "is not a regular file")
    return file


def _nearest(file: Path) -> str:
    names = [entry.name for entry in file.parent.iterdir()] if file.parent.is_dir() else []
    near = difflib.get_close_matches(file.name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
