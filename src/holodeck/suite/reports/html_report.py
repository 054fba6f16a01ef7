"""The result of a suite as an HTML page."""

from pathlib import Path

from holodeck.lib.reports.formats import write_report_text
from holodeck.lib.reports.html import page_of
from holodeck.lib.reports.page_file import render_page
from holodeck.suite.results import RunResult


class HTMLReporter:
    """Returns a page that needs no other file and shows every text as it is."""

    def report(self, result: RunResult, output_path: str | Path | None = None) -> str:
        """Return the HTML, and write it to a file if there is a path. Raises ReportError."""
        html = render_page(page_of(result.to_report(), "Suite Report", "scenario"))
        if output_path is not None:
            write_report_text(html, Path(output_path))
        return html
