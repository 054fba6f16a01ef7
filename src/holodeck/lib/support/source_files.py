"""Whose a file of Python code is: the user's, holodeck's, or that of an installed package.

The worker of a process backend loads this module, so it imports only the standard library and runs
on Python 3.9.
"""

from __future__ import annotations

import os
import sysconfig
from contextlib import suppress
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[2])
_SITE = ("site-packages", "dist-packages")


def is_users_file(file: str) -> bool:
    """Whether a file is neither holodeck's nor that of an installed package."""
    if file.startswith("<"):
        return False
    return not is_our_file(file) and _installed_part(file) is None


def is_testing_library(file: str) -> bool:
    """Whether a file belongs to a module whose errors say what does not hold, such as unittest."""
    parts = Path(_installed_part(file) or "").parts
    return any("test" in part or "assert" in part for part in parts)


def is_our_file(file: str) -> bool:
    """Whether a file is holodeck's."""
    return _part_below(_PACKAGE, file) is not None


def display_code_path(file: str) -> str:
    """Return the path, relative if possible, so that it says nothing about the machine."""
    installed = _installed_part(file)
    if installed is not None:
        return installed
    with suppress(OSError):  # the working directory may be gone
        return _part_below(str(Path.cwd()), file) or file
    return file


def _installed_part(file: str) -> str | None:
    """Return the path below site-packages or the standard library; None if it is outside."""
    parts = Path(file).parts
    for name in _SITE:
        if name in parts:
            return str(Path(*parts[parts.index(name) + 1 :]))
    folders = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
    found = (_part_below(folder, file) for folder in folders if folder)
    return next((part for part in found if part is not None), None)


def _part_below(folder: str, file: str) -> str | None:
    """Return the path of a file in a folder, where it may be a link; None if it is outside."""
    for resolve in (os.path.realpath, os.path.abspath):
        path, parent = resolve(file), resolve(folder)
        if path.startswith(parent + os.sep):
            return os.path.relpath(path, parent)
    return None
