"""The places in YAML where cases are written."""

import os
from functools import lru_cache
from pathlib import Path

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
