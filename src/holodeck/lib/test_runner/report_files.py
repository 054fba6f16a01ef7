"""Writes the reports of a run to the files that the command line names."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from holodeck.errors import ReportError
from holodeck.lib.reports.formats import FORMATS, write_report, write_report_text
from holodeck.lib.reports.locations import SourceLinks
from holodeck.lib.ui.live import write_text
from holodeck.models.config import ReportDetail
from holodeck.models.test_result import TestReport

Clean = Callable[[str], str]
"""Returns a text without secrets and control characters."""


@dataclass(frozen=True)
class ReportTarget:
    """A file to write the report to."""

    path: Path
    """As the user wrote it."""
    report_format: str
    file: Path
    """The absolute path: code under test may change the working directory."""


def write_reports(
    report: TestReport,
    targets: Sequence[ReportTarget],
    clean: Clean,
    detail: ReportDetail | None = None,
    links: SourceLinks | None = None,
) -> list[str]:
    """Write every report that can be written; return an error message for each of the others.

    `detail` and `links` are about Markdown.
    """

    def write(target: ReportTarget) -> None:
        if target.report_format != "markdown":
            write_report(target.report_format, report, target.file, target.path)
            return
        text = render_report(report, target.report_format, detail, links)
        write_report_text(text, target.file, target.path)

    return write_each(targets, write, clean)


def render_report(
    report: TestReport,
    report_format: str,
    detail: ReportDetail | None = None,
    links: SourceLinks | None = None,
) -> str:
    """Return the text of a report; `detail` and `links` are about Markdown."""
    render = FORMATS.load(report_format, location="--format")
    if report_format != "markdown":
        return render(report)
    # Many pages of text: most runs print only the summary.
    from holodeck.lib.test_runner.reporter import generate_markdown_report  # noqa: PLC0415

    return generate_markdown_report(report, detail or "all", links)


def write_each(
    targets: Sequence[ReportTarget], write: Callable[[ReportTarget], None], clean: Clean
) -> list[str]:
    """Call `write` for each target; return an error message for each that cannot be written."""
    failures = []
    for target in targets:
        try:
            write(target)
        except ReportError as error:
            failures.append(str(error))
        else:
            write_text(sys.stdout, clean(f"Report saved to {target.path}\n"))
    return failures
