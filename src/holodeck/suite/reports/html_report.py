"""The result of a suite as one HTML page."""

from pathlib import Path

from holodeck.lib.reports.formats import write_report_text
from holodeck.lib.reports.html import page_of
from holodeck.lib.reports.page_file import render_page
from holodeck.lib.reports.summary import summarize
from holodeck.lib.tools.base import to_json_value
from holodeck.models.test_result import MetricResult, TestReport, TestResult, ToolInvocation
from holodeck.models.token_usage import TokenUsage
from holodeck.suite.results import RunResult, ScenarioRunResult, ScoreResult


class HTMLReporter:
    """Returns a page that needs no other file and shows every text as it is."""

    def report(self, result: RunResult, output_path: str | Path | None = None) -> str:
        """Return the HTML, and write it to a file if there is a path. Raises ReportError."""
        html = render_page(page_of(_report(result), "Suite Report", "scenario"))
        if output_path is not None:
            write_report_text(html, Path(output_path))
        return html


def _report(result: RunResult) -> TestReport:
    """Return the result of a suite as a report."""
    results = list(map(_test_result, result.scenario_results))
    left_out = f"fail_fast left out: {', '.join(result.not_reached)}"
    return TestReport(
        agent_name=result.suite_name,
        agent_config_path="",
        results=results,
        summary=summarize(results, round(result.total_duration_ms)),
        timestamp=result.timestamp.isoformat(),
        holodeck_version="",
        environment={"Run": result.run_id},
        notes=[left_out] if result.not_reached else [],
    )


def _test_result(result: ScenarioRunResult) -> TestResult:
    scenario, answer = result.scenario, result.agent_result
    usage = answer.token_usage
    return TestResult(
        test_name=scenario.name,
        tags=scenario.tags,
        test_input=scenario.input,
        ground_truth=scenario.expected_output,
        agent_response=answer.output or None,
        tool_invocations=[
            ToolInvocation(
                name=call.name,
                args=to_json_value(call.arguments),
                result=to_json_value(call.result),
            )
            for call in answer.tool_calls
        ],
        metric_results=list(map(_metric, result.scores)),
        passed=result.outcome.is_pass,
        outcome=result.outcome,
        errors=[result.error] if result.error else [],
        raised=[] if result.raised is None else [result.raised],
        execution_time_ms=round(result.duration_ms),
        timestamp="",
        token_usage=usage and TokenUsage.of(usage.prompt_tokens, usage.completion_tokens),
    )


def _metric(row: ScoreResult) -> MetricResult:
    return MetricResult(
        metric_name=row.scorer_name,
        score=None if row.error else row.score,
        passed=row.passed,
        error=row.error,
        raised=row.raised,
        reasoning=row.explanation or None,
    )
