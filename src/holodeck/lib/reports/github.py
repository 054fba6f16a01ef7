"""What GitHub Actions shows of a run: annotations on lines of YAML, and a step summary."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from holodeck.lib.reports.junit import case_title
from holodeck.lib.reports.locations import SourceLinks, place_of
from holodeck.lib.reports.overview import most_telling_first, overview
from holodeck.lib.text import one_line
from holodeck.models.test_result import TestReport, TestResult

MOST_ANNOTATIONS = 10
"""GitHub shows no more of a kind for one step."""
_MAX_MESSAGE = 1_000
_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def annotations(report: TestReport, workspace: Path) -> str:
    """Return a workflow command for each of the most telling tests that did not pass.

    Failed tests come before errors, and of the same reason only the first is annotated.

    Args:
        report: The results.
        workspace: The folder of the checkout, to which paths must be relative, unless the report
            knows it better.
    """
    telling = islice(_most_telling(report), MOST_ANNOTATIONS)
    lines = [_command(one, report, workspace) for one in telling]
    return "".join(f"{line}\n" for line in lines)


def step_summary(report: TestReport, links: SourceLinks) -> str:
    """Return the first screen of the report, as Markdown."""
    return "\n".join(overview(report, most_telling_first(report), links)) + "\n"


def _most_telling(report: TestReport) -> Iterator[TestResult]:
    groups = most_telling_first(report)
    yield from (group.first for group in groups)
    yield from (one for group in groups for one in group.results[1:])


def _command(result: TestResult, report: TestReport, workspace: Path) -> str:
    file, line, column = place_of(report, result, str(workspace))
    properties = {"file": file, "line": line, "col": column}
    properties["title"] = one_line(case_title(result), 100)
    written = ",".join(
        f"{key}={str(value).translate(_PROPERTY)}"
        for key, value in properties.items()
        if value is not None
    )
    message = "\n".join(one_line(reason, _MAX_MESSAGE) for reason in result.reasons()[:20])
    return f"::error {written}::{message.translate(_DATA)}"
