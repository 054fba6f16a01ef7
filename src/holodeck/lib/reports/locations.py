"""The places in YAML where cases are written, and links to them."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from holodeck.lib.reports.markdown import inline
from holodeck.models.results.origin import RunOrigin
from holodeck.models.test_result import TestReport, TestResult


def split_location(location: str | None) -> tuple[str | None, int | None, int | None]:
    """Return file, line and column of a location such as `agent.yaml:41:7`."""
    file, _, column = (location or "").rpartition(":")
    name, _, line = file.rpartition(":")
    if name and line.isdigit() and column.isdigit():
        return name, int(line), int(column)
    return location, None, None


def place_of(
    report: TestReport, result: TestResult, checkout: str | None = None
) -> tuple[str, int | None, int | None]:
    """Return file, line and column of a case; the file is that of the agent if it has no other.

    `checkout` is the folder of the checkout if the report does not know it.
    """
    file, line, column = split_location(result.location)
    path = file or report.config_path_of(result)
    return path_in_checkout(path, report.origin_of(result), checkout), line, column


def path_in_checkout(path: str, origin: RunOrigin | None, checkout: str | None = None) -> str:
    """Return a path relative to the checkout, as services expect it; unchanged if it is elsewhere.

    `checkout` is the folder of the checkout if the origin does not know it.
    """
    root = checkout if origin is None or origin.checkout is None else origin.checkout
    if origin is None or origin.folder is None or root is None:
        return path
    return _path_below(root, origin.folder, path)


@lru_cache(maxsize=256)
def _path_below(root: str, folder: str, path: str) -> str:
    inside = Path(os.path.relpath(Path(folder, path), root))
    return path if ".." in inside.parts else inside.as_posix()


def short_location(location: str | None) -> str | None:
    """Return `agent.yaml:41` of `agent.yaml:41:7`; None if there is no location."""
    file, line, _ = split_location(location)
    return file if line is None else f"{file}:{line}"


@dataclass(frozen=True)
class SourceLinks:
    """Where the lines of YAML can be read."""

    base: str = ""
    """The address of the checkout; empty for links relative to the working folder."""
    checkout: str | None = None
    """The folder of the checkout, unless the report knows it."""

    def link(self, report: TestReport, result: TestResult) -> str:
        """Return a link to the place of a case; empty if it is not in a file."""
        file, line, _ = split_location(result.location)
        if file is None:
            return ""
        shown = inline(file if line is None else f"{file}:{line}")
        path = Path(place_of(report, result, self.checkout)[0] if self.base else file)
        if line is None or path.is_absolute() or (self.base and ".." in path.parts):
            return shown
        return f"[{shown}]({self.base}{quote(path.as_posix(), errors='replace')}#L{line})"
