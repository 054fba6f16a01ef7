"""The result of a suite as one HTML page."""

from collections.abc import Iterator
from pathlib import Path

from holodeck.lib.reports.formats import write_report_text
from holodeck.lib.reports.html import CasePart, CaseRow, Page, render_page
from holodeck.lib.reports.markdown import json_text
from holodeck.lib.text import percent
from holodeck.suite.results import RunResult, ScenarioRunResult, ScoreResult


class HTMLReporter:
    """Returns a page that needs no other file and shows every text as it is."""

    def report(self, result: RunResult, output_path: str | Path | None = None) -> str:
        """Return the HTML, and write it to a file if there is a path. Raises ReportError."""
        html = render_page(_page(result))
        if output_path is not None:
            write_report_text(html, Path(output_path))
        return html


def _page(result: RunResult) -> Page:
    notes = []
    if result.not_reached:
        notes.append(f"fail_fast left out: {', '.join(result.not_reached)}")
    return Page(
        title=f"Suite Report: {result.suite_name}",
        facts=[("Run", result.run_id), ("Time", result.timestamp.isoformat())],
        figures=[
            ("Pass rate", percent(100 * result.pass_rate, 0)),
            ("Average score", f"{result.aggregate_score:.2f}"),
            ("Scenarios", str(len(result.scenario_results))),
            ("Duration", f"{result.total_duration_ms:.0f} ms"),
        ],
        thing="Scenario",
        cases=list(map(_row, result.scenario_results)),
        notes=notes,
    )


def _row(result: ScenarioRunResult) -> CaseRow:
    return CaseRow(
        name=result.scenario.name,
        status=result.status,
        kind={"PASS": "passed", "FAIL": "failed", "ERROR": "error"}[result.status],
        score=result.mean_score,
        elapsed_ms=result.duration_ms,
        reasons=result.explanations,
        parts=list(_parts(result)),
    )


def _parts(result: ScenarioRunResult) -> Iterator[CasePart]:
    answer = result.agent_result
    yield CasePart("Input", result.scenario.input)
    yield CasePart("Response", answer.output or "(no response)")
    if result.scenario.expected_output is not None:
        yield CasePart("Expected", result.scenario.expected_output)
    if answer.tool_calls:
        calls = [f"{one.name}({json_text(one.arguments)})" for one in answer.tool_calls]
        yield CasePart("Tool calls", "\n".join(calls))
    if result.scores:
        yield CasePart("Scores", "\n".join(map(_score, result.scores)))
    if result.raised is not None:
        yield CasePart("Raised", "\n".join([*result.raised.traceback, result.raised.error]))


def _score(row: ScoreResult) -> str:
    verdict = "error" if row.error else "pass" if row.passed else "fail"
    return f"{verdict}: {row.scorer_name} {row.score:.2f} {row.explanation}".rstrip()
