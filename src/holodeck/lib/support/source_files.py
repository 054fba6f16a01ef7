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
    return _is_inside(file, _PACKAGE)


def display_code_path(file: str) -> str:
    """Return the path, relative if possible, so that it says nothing about the machine."""
    installed = _installed_part(file)
    if installed is not None:
        return installed
    with suppress(OSError):  # the working directory may be gone
        folder = str(Path.cwd())
        if _is_inside(file, folder):
            return os.path.relpath(os.path.realpath(file), os.path.realpath(folder))
    return file


def _installed_part(file: str) -> str | None:
    """Return the path below site-packages or the standard library; None if it is outside."""
    parts = Path(file).parts
    for name in _SITE:
        if name in parts:
            return str(Path(*parts[parts.index(name) + 1 :]))
    for name in ("stdlib", "platstdlib"):
        folder = sysconfig.get_path(name)
        if folder and _is_inside(file, folder):
            return os.path.relpath(os.path.realpath(file), os.path.realpath(folder))
    return None


def _is_inside(file: str, folder: str) -> bool:
    return os.path.realpath(file).startswith(os.path.realpath(folder) + os.sep)
