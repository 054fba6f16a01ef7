"""The formats of a report, and how one gets into a file."""

import errno
import json
import os
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pydantic_core import PydanticSerializationError

from holodeck.errors import ConfigError, ReportError
from holodeck.lib.registry import Registry, unknown_name
from holodeck.models.test_result import TestReport

Renderer = Callable[[TestReport], str]

FORMATS: Registry[Renderer] = Registry(
    "report",
    {
        "markdown": "holodeck.lib.test_runner.reporter:generate_markdown_report",
        "json": "holodeck.lib.reports.formats:generate_json_report",
    },
)
"""Format → function from a report to its text."""
PIPE_TIMEOUT_S = 1.0
"""How long a pipe may be without anybody who reads from it."""
SUFFIXES = {".md": "markdown", ".markdown": "markdown", ".json": "json"}


def generate_json_report(report: TestReport) -> str:
    """The report with every field, as JSON."""
    try:
        text = report.model_dump_json(indent=2)
    except PydanticSerializationError:  # half a surrogate pair, which JSON can only write escaped
        text = json.dumps(report.model_dump(), indent=2, default=str)
    return text + "\n"


def format_for(path: Path, explicit: str | None = None) -> str:
    """The format for a file: what its suffix says, else `explicit`. Raises ConfigError."""
    by_suffix = SUFFIXES.get(path.suffix.lower())
    if explicit is None and by_suffix is None:
        known = ", ".join(SUFFIXES)
        wanted = f"end it in one of {known}, or say --format {' or '.join(FORMATS.names())}"
        raise ConfigError("--output", f"{str(path)!r} does not tell its format; {wanted}")
    if explicit is not None and ":" not in explicit and explicit not in FORMATS.names():
        raise ConfigError("--format", unknown_name("report", explicit, FORMATS.names()))
    if explicit is not None and by_suffix is not None and explicit != by_suffix:
        raise ConfigError(
            "--format", f"{explicit!r} contradicts {str(path)!r}, which is {by_suffix} by its name"
        )
    return by_suffix or str(explicit)


def check_writable(path: Path) -> None:
    """Raise ConfigError if a report at `path` would fail for a reason that is plain by now."""
    try:
        is_folder = path.is_dir()
        _resolve_links(path)
    except OSError as error:
        reason = f"{str(path)!r} cannot be written: {error.strerror}"
        raise ConfigError("--output", reason) from error
    if is_folder:
        raise ConfigError("--output", f"{str(path)!r} is a folder; name a file")
    folder = next((parent for parent in path.absolute().parents if parent.exists()), None)
    if folder is None or not folder.is_dir():
        raise ConfigError("--output", f"{str(path)!r} cannot be made: {folder} is not a folder")
    if path.exists() and not os.access(path, os.W_OK):
        raise ConfigError("--output", f"{str(path)!r} cannot be written: no right to write it")
    if path.is_file() or not path.exists():
        _check_folder(path, path.resolve().parent if path.exists() else folder)


def _resolve_links(path: Path) -> Path:
    """Where the links of `path` lead. Raises OSError if they lead in a circle."""
    try:
        return path.resolve()
    except RuntimeError as error:  # what Python says before 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error


def _check_folder(path: Path, folder: Path) -> None:
    """Raise ConfigError unless a file can be made there; rights alone do not tell."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = f"{folder} takes no new file: {error.strerror}"
        raise ConfigError("--output", f"{str(path)!r} cannot be written: {reason}") from error


def write_report(
    report: TestReport, path: Path, report_format: str, shown: Path | None = None
) -> None:
    """Write the report; a reader sees the old file or the whole new one.

    Raises ReportError, which names the path as `shown`, else as it is.
    """
    text = FORMATS.load(report_format, where="--format")(report)
    data = text.encode("utf-8", "backslashreplace")
    try:
        _write(data, path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ReportError(f"the report cannot be written to {shown or path}: {reason}") from error


def _write(data: bytes, path: Path) -> None:
    target = _resolve_links(path)  # so that a link stays one
    if target.exists() and not target.is_file():  # a pipe or a device
        _write_special_file(data, target)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(_mode_for(target))
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _open_special_file(target: Path) -> int:
    """The descriptor of a pipe or device; who reads from a pipe may come a moment late."""
    give_up_at = time.monotonic() + PIPE_TIMEOUT_S
    while True:
        try:
            return os.open(target, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() >= give_up_at:
                raise OSError(errno.ENXIO, "nobody reads from it") from error
        time.sleep(0.01)


def _write_special_file(data: bytes, target: Path) -> None:
    """Write to what is no file; a pipe that nobody reads is an error instead of a long wait."""
    descriptor = _open_special_file(target)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _mode_for(target: Path) -> int:
    """The mode the file has, or the one that a new file gets."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
