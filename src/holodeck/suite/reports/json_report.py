"""The result of a suite as JSON, with every field."""

from pathlib import Path

from holodeck.lib.reports.formats import generate_json_report, write_report_text
from holodeck.suite.results import RunResult


class JSONReporter:
    """Returns the result as JSON, from which `RunResult.model_validate_json` reads it again."""

    def report(self, result: RunResult, output_path: str | Path | None = None) -> str:
        """Return the JSON, and write it to a file if there is a path. Raises ReportError."""
        text = generate_json_report(result)
        if output_path is not None:
            write_report_text(text, Path(output_path))
        return text
