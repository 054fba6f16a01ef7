"""What an exception says, and which line of the user's code raised it."""

import os
import sysconfig
import traceback
from contextlib import suppress
from pathlib import Path

from holodeck.errors import HoloDeckError
from holodeck.models.outcome import RaisedError

_PACKAGE = str(Path(__file__).parents[1])
_SITE = ("site-packages", "dist-packages")
_CODE_LIMIT = 1_000
_MOST_FRAMES = 30


def message_of(error: BaseException) -> str:
    """The message; empty for an exception whose `__str__` raises."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception of the user's may raise what it likes
        return ""


def describe(error: BaseException) -> str:
    """Type and message of an exception on one line; of holodeck's own errors the message."""
    text = " ".join(message_of(error).split())
    name = type(error).__name__
    if isinstance(error, HoloDeckError):
        return text or name
    return f"{name}: {text}" if text else name


def raised_by(error: BaseException) -> RaisedError | None:
    """Where code of the user's raised the exception, or the cause that holodeck's error repeats.

    The place is the innermost frame outside of holodeck, installed packages and the standard
    library; without one, the innermost frame of all. None where only holodeck's own code, or what
    its own code called, is to be seen.
    """
    cause = _cause_of(error)
    frames = traceback.extract_tb(_stands_for(cause).__traceback__)
    users = [frame for frame in frames if _is_users(frame.filename)]
    if not users:
        repeats_it = describe(error) == describe(cause)
        if not frames or not repeats_it or isinstance(cause, HoloDeckError):
            return None
        if _is_inside(frames[-1].filename, _PACKAGE):
            return None
    shown = users or frames[-1:]
    last = shown[-1]
    return RaisedError(
        error=describe(cause),
        file=_shown(last.filename),
        line=last.lineno or 0,
        function=last.name,
        code=_code(last),
        traceback=[_as_line(frame) for frame in shown[-_MOST_FRAMES:]],
    )


def with_place(error: BaseException) -> str:
    """What `describe` says, with the place in parentheses if code of the user's raised it."""
    raised = raised_by(error)
    return describe(error) if raised is None else f"{describe(error)} ({raised.place})"


def _cause_of(error: BaseException) -> BaseException:
    """The exception that an error of holodeck's repeats at its end, else the error itself."""
    said = describe(error)
    while isinstance(error, HoloDeckError):
        cause = error.__cause__
        if cause is None or not said.endswith(describe(cause)):
            break
        error = cause
    return error


def _stands_for(error: BaseException) -> BaseException:
    """The `sys.exit()` that became a RuntimeError on its way out of a thread, else the error."""
    cause = error.__cause__
    is_carried = isinstance(error, RuntimeError) and cause is not None
    return cause if is_carried and not isinstance(cause, Exception) else error  # type: ignore[return-value]


def _is_users(file: str) -> bool:
    if file.startswith("<"):
        return False
    return not _is_inside(file, _PACKAGE) and _installed_part(file) is None


def _installed_part(file: str) -> str | None:
    """The path below the folder of installed packages or of the standard library, if it is one."""
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


def _shown(file: str) -> str:
    """The path, relative where the machine would otherwise show in it."""
    installed = _installed_part(file)
    if installed is not None:
        return installed
    with suppress(OSError):  # the working directory may be gone
        folder = str(Path.cwd())
        if _is_inside(file, folder):
            return os.path.relpath(os.path.realpath(file), os.path.realpath(folder))
    return file


def _code(frame: traceback.FrameSummary) -> str | None:
    """The line; None for one that no person wrote. Never cut, or half a secret might stay."""
    lines = (frame.line or "").strip().splitlines()
    return lines[0] if lines and len(lines[0]) <= _CODE_LIMIT else None


def _as_line(frame: traceback.FrameSummary) -> str:
    code = _code(frame)
    place = f"{_shown(frame.filename)}:{frame.lineno} in {frame.name}"
    return f"{place}: {code}" if code else place
