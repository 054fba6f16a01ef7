"""Keeps the paths of a configuration inside the agent's folder, and outputs off the inputs."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Literal

from holodeck import errors
from holodeck.lib.support.text import did_you_mean

_may_leave: ContextVar[bool] = ContextVar("holodeck_paths_may_leave", default=False)

_inputs: ContextVar[set[Path] | None] = ContextVar("holodeck_inputs", default=None)


_SOURCES = frozenset({".py", ".yaml", ".yml", ".toml", ".cfg", ".ini"})
"""Endings of code and configuration, which no command writes as a report; they may be empty."""
Kind = Literal["report", "baseline", "events", "schema", "metrics", "database"]
_BEGINNINGS: Mapping[Kind, bytes] = {
    # in each format; JUnit also from other programs, as CI replaces it
    "report": rb"# (?:Test Report: |Comparison of Two )"
    rb'|\{\s*"schema_version": \d'
    rb'|\[\s*(?:\]|\{\s*"description": [^\n]*\n\s*"check_name": "holodeck/)'
    rb"|<!DOCTYPE html>.{0,300}Content-Security-Policy\" content=\"default-src 'none'; script-src '"
    rb"|(?:<\?xml[^>]{0,100}>\s*)?<testsuites?[\s>]",
    "baseline": rb'\{\s*"kind": "holodeck-baseline',
    "events": rb'\{"type": "[a-z_]+", "batch_run_id": "',
    "schema": rb'\{\s*"\$schema": "[^"]{0,100}",\s*"additionalProperties": false,'
    rb'\s*"description": "The content of an `agent.yaml`',
    "metrics": rb"# HELP ",
    "database": rb"SQLite format 3\0",
}
"""How the files begin that holodeck writes, and may therefore replace or extend."""
_BEGINNING = 8192
"""Bytes of a file that tell."""


@contextmanager
def inputs_noted() -> Iterator[None]:
    """Note the files that are read within the block, for `refuse_input`."""
    token = _inputs.set(set())
    try:
        yield
    finally:
        _inputs.reset(token)


def note_input(file: Path) -> None:
    """Note that a file is read, if `inputs_noted` is active."""
    noted = _inputs.get()
    if noted is not None:
        with suppress(OSError, RuntimeError, ValueError):  # whoever reads it says why it cannot
            noted.add(file.resolve())


def refuse_input(path: Path, location: str, kinds: Iterable[Kind] = tuple(_BEGINNINGS)) -> None:
    """Raise ConfigError if a file would be overwritten that is read, or is of no such kind.

    An empty file may be overwritten, unless it is code or configuration.
    """
    try:
        file = path.resolve()
        if not file.is_file():
            return
        is_source = file.suffix in _SOURCES or file.name == ".env"
        beginning = _beginning_of(file)
    except (OSError, RuntimeError):
        return  # what writes it says why it cannot
    if is_source or file in (_inputs.get() or ()):
        raise errors.ConfigError(
            location, f"{str(path)!r} is a file that this command reads; name another file"
        )
    if beginning and not any(re.match(_BEGINNINGS[kind], beginning, re.DOTALL) for kind in kinds):
        raise errors.ConfigError(
            location,
            f"{str(path)!r} exists, and is no {' or '.join(kinds)} of holodeck; remove it, or name"
            " another file",
        )


def _beginning_of(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(_BEGINNING)


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


def outside_is_allowed() -> bool:
    """Whether `allow_outside` is active."""
    return _may_leave.get()


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
    if not (inside or outside_is_allowed()):
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
    note_input(file)
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
    if not (inside or outside_is_allowed()):
        raise errors.ConfigError(
            str(path),
            f"lies outside of the agent's folder {folder}; name a path inside, or allow such paths"
            " with --allow-outside",
        )
    return full


def written_path(
    path: str | Path, folder: Path, location: str, remedy: str = "--allow-outside"
) -> Path:
    """Return the absolute path at which a run writes, where a file of the agent names it.

    A path that the user names, such as on the command line, may lie anywhere and needs no check.

    Args:
        path: The path, relative to `folder`; `~` is the user's home.
        folder: The folder of the agent.
        location: What messages begin with.
        remedy: The option that names the path on the command line.

    Raises:
        ConfigError: The path is outside of `folder` or in its `.git`, also through a link, or is a
            hard link, and `allow_outside` is not active; or the command reads the file.
    """
    others = "" if remedy == "--allow-outside" else f", or name it with {remedy}"
    try:
        full = path_inside(Path(path).expanduser(), folder)
        is_in_git = ".git" in full.parts[len(folder.resolve().parts) :]
    except errors.ConfigError as error:
        raise errors.ConfigError(location, f"{str(path)!r} {error.message}{others}") from error
    except RuntimeError as error:  # the home of an unknown user
        reason = f"{str(path)!r} is not a usable path: {error}"
        raise errors.ConfigError(location, reason) from error
    if is_in_git and not outside_is_allowed():
        raise errors.ConfigError(
            location, f"{str(path)!r} lies in the folder of git; name another path{others}"
        )
    if is_file(full) and full.stat().st_nlink > 1 and not outside_is_allowed():
        raise errors.ConfigError(
            location,
            f"{str(path)!r} is a hard link, whose other names may lie anywhere; remove it, or name"
            f" another path{others}",
        )
    refuse_input(full, location)
    return full


def is_file(path: Path) -> bool:
    """Whether the path is a regular file; False for a name that is too long."""
    try:
        return path.is_file()
    except OSError:
        return False
