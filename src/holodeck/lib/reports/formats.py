"""The formats of a report, and how reports are written to the files that a command names."""

import errno
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pydantic import BaseModel

from holodeck.errors import ConfigError, ReportError
from holodeck.lib.support.files import replace_file
from holodeck.lib.support.text import inert, inert_json, inert_xml
from holodeck.lib.ui.live import write_raw, write_text
from holodeck.lib.user_code.registry import Registry, unknown_name
from holodeck.models.base import model_json
from holodeck.models.config import ReportDetail
from holodeck.models.test_result import TestReport

if TYPE_CHECKING:
    from holodeck.lib.reports.markdown import SourceLinks
    from holodeck.models.records.comparison import ComparisonReport


Clean = Callable[[str], str]
"""Returns a text without secrets and control characters."""
Renderer = Callable[..., str]

FORMATS: Registry[Renderer] = Registry(
    "report",
    {
        "markdown": "holodeck.lib.reports.markdown_report:generate_markdown_report",
        "json": "holodeck.lib.reports.formats:generate_json_report",
        "html": "holodeck.lib.reports.html:generate_html_report",
        "junit": "holodeck.lib.reports.junit:generate_junit_report",
        "codequality": "holodeck.lib.reports.junit:generate_code_quality_report",
    },
)
"""Format → function from a report to its text."""
PIPE_TIMEOUT_S = 1.0
"""How long to wait until a process reads from a pipe."""
SUFFIXES = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".json": "json",
    ".html": "html",
    ".htm": "html",
    ".xml": "junit",
}
_JSON_FORMATS = frozenset({"json", "codequality"})


def generate_json_report(report: BaseModel) -> str:
    """Return the report with every field, as JSON."""
    return "".join(_json_parts(report))


def _json_parts(report: BaseModel) -> Iterator[str]:
    """Yield the report result by result, as the JSON of 10,000 cases takes 23 MB."""
    if not isinstance(report, TestReport) or not report.results:
        yield model_json(report, indent=2) + "\n"
        return
    frame = model_json(report.model_copy(update={"results": []}), indent=2)
    before, key, after = frame.partition('\n  "results": [')  # no string has a line break
    yield before + key
    for at, result in enumerate(report.results):
        text = model_json(result, indent=2).replace("\n", "\n    ")
        yield f",\n    {text}" if at else f"\n    {text}"
    yield f"\n  {after}\n"


@dataclass(frozen=True)
class ReportTarget:
    """A file to write the report to."""

    path: Path
    """As the user wrote it."""
    report_format: str
    file: Path
    """The absolute path: code under test may change the working directory."""
    stream: TextIO | None = None
    """What stands for stdout in place of the file, for the path `-`."""


def write_reports(
    report: "TestReport | ComparisonReport",
    targets: Sequence[ReportTarget],
    clean: Clean,
    detail: ReportDetail | None = None,
    links: "SourceLinks | None" = None,
) -> list[str]:
    """Write every report that can be written; return an error message for each of the others.

    `detail` and `links` are about the Markdown of a run.
    """
    failures = []
    for target in targets:
        try:
            if target.stream is not None:
                text = render_report(report, target.report_format, detail, links)
                print_report(text, target.report_format, target.stream)
                _flush(target.stream)
                continue
            write_report(target.report_format, report, target.file, target.path, detail, links)
        except ReportError as error:
            failures.append(str(error))
        else:
            write_text(sys.stdout, clean(f"Report saved to {target.path}\n"))
    return failures


def print_report(text: str, report_format: str, stream: TextIO) -> None:
    """Write a report so that no text in it is obeyed, and each format stays valid."""
    # The texts of a page are references or compressed; scripts and styles must stay as they are.
    escapes: dict[str, Callable[[str], str]]
    escapes = {"json": inert_json, "codequality": inert_json, "junit": inert_xml, "html": str}
    write_raw(stream, escapes.get(report_format, inert)(text))


def _flush(stream: TextIO) -> None:
    """Raise ReportError if the report cannot be written, unless its reader has read enough."""
    try:
        stream.flush()
    except BrokenPipeError:
        pass
    except OSError as error:
        raise ReportError(f"the report cannot be written to stdout: {error.strerror}") from error


def write_report(
    report_format: str,
    report: "TestReport | ComparisonReport",
    path: Path,
    shown: Path | None = None,
    detail: ReportDetail | None = None,
    links: "SourceLinks | None" = None,
) -> None:
    """Write a report. Raises ReportError as `write_report_text` does."""
    is_json = report_format == "json"
    text = _json_parts(report) if is_json else render_report(report, report_format, detail, links)
    write_report_text(text, path, shown)


def render_report(
    report: "TestReport | ComparisonReport",
    report_format: str,
    detail: ReportDetail | None = None,
    links: "SourceLinks | None" = None,
) -> str:
    """Return the text of a report; `detail` and `links` are about the Markdown of a run."""
    if not isinstance(report, TestReport):
        return report.rendered(report_format)
    render = FORMATS.load(report_format, location="--format")
    return render(report, detail or "all", links) if report_format == "markdown" else render(report)


def format_for(path: Path, explicit: str | None = None) -> str:
    """Return the format of a file by its suffix, else `explicit`. Raises ConfigError."""
    by_suffix = SUFFIXES.get(path.suffix.lower())
    if explicit is None and by_suffix is None:
        known = ", ".join(SUFFIXES)
        wanted = f"use one of {known}, or add --format {' or '.join(FORMATS.names())}"
        raise ConfigError("--output", f"{str(path)!r} has an unknown suffix; {wanted}")
    if explicit is not None and ":" not in explicit and explicit not in FORMATS.names():
        raise ConfigError("--format", unknown_name("report", explicit, FORMATS.names()))
    if explicit is not None and {explicit, by_suffix} <= _JSON_FORMATS:
        return explicit
    if explicit is not None and by_suffix is not None and explicit != by_suffix:
        raise ConfigError(
            "--format", f"{explicit!r} contradicts {str(path)!r}, which is {by_suffix} by its name"
        )
    return by_suffix or str(explicit)


def check_writable(path: Path) -> None:
    """Raise ConfigError if it is already certain that `path` cannot be written."""
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
        raise ConfigError("--output", f"{str(path)!r} cannot be created: {folder} is not a folder")
    if path.exists() and not os.access(path, os.W_OK):
        raise ConfigError("--output", f"{str(path)!r} cannot be written: permission denied")
    if path.is_file() or not path.exists():
        _check_folder(path, path.resolve().parent if path.exists() else folder)


def _resolve_links(path: Path) -> Path:
    """Return the target of links. Raises OSError if they form a loop."""
    try:
        return path.resolve()
    except RuntimeError as error:  # before Python 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error


def _check_folder(path: Path, folder: Path) -> None:
    """Raise ConfigError unless a file can be created there; permissions alone do not tell."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = f"no file can be created in {folder}: {error.strerror}"
        raise ConfigError("--output", f"{str(path)!r} cannot be written: {reason}") from error


def write_report_text(text: str | Iterable[str], path: Path, shown: Path | None = None) -> None:
    """Write the text of a report, or its parts; a reader sees the old file or the whole new file.

    Raises ReportError with the path, or with `shown` in its place.
    """
    parts = [text] if isinstance(text, str) else text
    data = (part.encode("utf-8", "backslashreplace") for part in parts)
    try:
        target = _resolve_links(path)  # so that a link stays a link
        if target.exists() and not target.is_file():  # a pipe or a device
            _write_special_file(b"".join(data), target)
        else:
            replace_file(target, data, is_synced=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ReportError(f"the report cannot be written to {shown or path}: {reason}") from error


def _write_special_file(data: bytes, target: Path) -> None:
    """Write to a pipe or device; a pipe without a reader, after a moment, is an error."""
    deadline = time.monotonic() + PIPE_TIMEOUT_S
    while True:
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() >= deadline:
                raise OSError(errno.ENXIO, "no process reads from it") from error
        time.sleep(0.01)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
