"""The tests that did not pass as a GitLab code quality report, shown beside the lines of YAML."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from holodeck.lib.reports.failure_groups import explained_lines
from holodeck.lib.reports.junit import case_title, why_incomplete
from holodeck.lib.reports.locations import path_in_checkout, place_of
from holodeck.lib.support.text import one_line
from holodeck.models.test_result import Outcome, TestReport, TestResult

_SEVERITY = {
    Outcome.FAILED: "critical",
    Outcome.AGENT_ERROR: "critical",
    Outcome.METRIC_ERROR: "major",
    Outcome.UNCHECKED: "major",
    Outcome.FLAKY: "minor",
}
_MAX_DESCRIPTION = 500


def generate_code_quality_report(report: TestReport) -> str:
    """Return the problems of a run as JSON; an empty list if every test passed each time."""
    return json.dumps(list(_rows(report)), indent=2, ensure_ascii=False) + "\n"


def _rows(report: TestReport) -> Iterator[dict[str, Any]]:
    for result in report.results:
        if result.outcome in _SEVERITY:
            yield _row(report, result)
    incomplete = why_incomplete(report)
    if incomplete is not None:
        yield _run_row(report, incomplete)


def _run_row(report: TestReport, reason: str) -> dict[str, Any]:
    """Return the problem that results are missing, which must not look like no problem."""
    path, origin = report.agent_config_path, report.origin
    if report.merged:
        path, origin = report.merged[0].agent_config_path, report.merged[0].origin
    return {
        "description": one_line(f"the run is not complete: {reason}", _MAX_DESCRIPTION),
        "check_name": "holodeck/incomplete",
        "fingerprint": hashlib.sha256(report.agent_name.encode(errors="replace")).hexdigest(),
        "severity": "blocker",
        "location": {"path": path_in_checkout(path, origin), "lines": {"begin": 1}},
    }


def _row(report: TestReport, result: TestResult) -> dict[str, Any]:
    file, line, _ = place_of(report, result)
    name = case_title(result)
    agent = result.agent_name or report.agent_name
    identity = "\0".join((agent, result.suite or "", result.test_id or name))
    description = f"{name}: {'; '.join(explained_lines(result, _MAX_DESCRIPTION))}"
    return {
        "description": one_line(description, _MAX_DESCRIPTION),
        "check_name": f"holodeck/{result.outcome.value}",
        "fingerprint": hashlib.sha256(identity.encode(errors="replace")).hexdigest(),
        "severity": _SEVERITY[result.outcome],
        "location": {"path": file, "lines": {"begin": line or 1}},
    }
