"""The result of a suite on the terminal, as HTML and as JSON, and as a report of test cases."""

from pathlib import Path
from typing import Any

from holodeck.lib.reports.formats import generate_json_report, write_report_text
from holodeck.lib.reports.html import page_of
from holodeck.lib.reports.page_file import render_page
from holodeck.lib.reports.summary import summarize
from holodeck.lib.support.text import inert, one_line
from holodeck.lib.tools.base import to_json_value
from holodeck.lib.ui.live import echo
from holodeck.models.results.evidence import Evidence
from holodeck.models.test_result import MetricResult, TestReport, TestResult, ToolInvocation
from holodeck.models.token_usage import TokenUsage
from holodeck.suite.results import RunResult, ScenarioRunResult

__all__ = ["CLIReporter", "HTMLReporter", "JSONReporter"]

_MAX_TEXT = 300
_TITLES = ("Scenario", "Status", "Score", "Duration", "Details")


class CLIReporter:
    """Prints the result as a table of scenarios and a line with the summary.

    Args:
        console: A console of rich, or another object with `print`; stdout by default.
    """

    def __init__(self, console: Any = None) -> None:
        self.console = console

    def report(self, result: RunResult) -> None:
        """Print the result; no text of agents and scorers is read as markup."""
        rows = [_TITLES]
        rows += [
            (
                one_line(scenario_result.scenario.name, _MAX_TEXT),
                scenario_result.status,
                f"{scenario_result.mean_score or 0:.2f}",
                f"{scenario_result.duration_ms:.0f} ms",
                one_line("; ".join(scenario_result.explanations), _MAX_TEXT),
            )
            for scenario_result in result.scenario_results
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"Suite: {result.suite_name}", f"Run:   {result.run_id}"]
        lines += [f"Time:  {result.timestamp.isoformat()}", ""]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        if result.not_reached:
            lines.append(f"fail_fast left out: {', '.join(result.not_reached)}")
        score = f"score {result.aggregate_score:.2f}"
        lines.append(f"{result.pass_rate:.0%} passed | {score} | {result.total_duration_ms:.0f} ms")
        for line in lines:
            if self.console is None:
                echo(line)
            else:  # a line that is broken could begin a command to a CI service
                self.console.print(inert(line), markup=False, highlight=False, soft_wrap=True)


class HTMLReporter:
    """Returns a page that needs no other file and shows every text as it is."""

    def report(self, result: RunResult, output_path: str | Path | None = None) -> str:
        """Return the HTML, and write it to a file if there is a path. Raises ReportError."""
        html = render_page(page_of(to_report(result), "Suite Report", "scenario"))
        if output_path is not None:
            write_report_text(html, Path(output_path))
        return html


class JSONReporter:
    """Returns the result as JSON, from which `RunResult.model_validate_json` reads it again."""

    def report(self, result: RunResult, output_path: str | Path | None = None) -> str:
        """Return the JSON, and write it to a file if there is a path. Raises ReportError."""
        text = generate_json_report(result)
        if output_path is not None:
            write_report_text(text, Path(output_path))
        return text


def to_report(run: RunResult) -> TestReport:
    """Return the result of a suite as a report of test cases."""
    results = [_to_test_result(run, result) for result in run.scenario_results]
    left_out = f"fail_fast left out: {', '.join(run.not_reached)}"
    return TestReport(
        agent_name=run.suite_name,
        agent_config_path="",
        results=results,
        summary=summarize(results, round(run.total_duration_ms)),
        timestamp=run.timestamp.isoformat(),
        holodeck_version="",
        environment={"Run": run.run_id},
        stopped=left_out if run.not_reached else None,
    )


def _to_test_result(run: RunResult, result: ScenarioRunResult) -> TestResult:
    scenario, answer = result.scenario, result.agent_result
    usage = answer.token_usage
    return TestResult(
        suite=run.suite_name,
        test_id=scenario.id,
        test_name=scenario.name,
        tags=scenario.tags,
        test_input=scenario.input,
        ground_truth=scenario.expected_output,
        agent_response=answer.output or (None if result.error else ""),
        tool_invocations=[
            ToolInvocation(
                name=call.name,
                args=to_json_value(call.arguments),
                result=to_json_value(call.result),
            )
            for call in answer.tool_calls
        ],
        evidence=Evidence(tool_calls="adapter" if answer.knows_tool_calls else None),
        metric_results=[
            MetricResult(
                metric_name=score.scorer_name,
                score=None if score.error else score.score,
                passed=None if score.error else score.passed,
                error=score.error,
                raised=score.raised,
                reasoning=score.explanation or None,
            )
            for score in result.scores
        ],
        passed=result.outcome.is_pass,
        outcome=result.outcome,
        errors=[result.error] if result.error else [],
        raised=[] if result.raised is None else [result.raised],
        execution_time_ms=round(result.duration_ms),
        agent_time_ms=round(result.duration_ms),
        timestamp=run.timestamp.isoformat(),
        token_usage=usage and TokenUsage.of(usage.prompt_tokens, usage.completion_tokens),
    )
