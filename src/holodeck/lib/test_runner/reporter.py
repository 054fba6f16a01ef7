"""The Markdown report of a run."""

from collections.abc import Iterator

from holodeck.lib.test_runner.costs import in_words
from holodeck.lib.test_runner.markdown import code, inline, table
from holodeck.lib.test_runner.report_case import STATUS, anchor, case_section, display_name
from holodeck.lib.text import percent
from holodeck.models.test_result import Outcome, ReportSummary, TestReport

_FAILURES_LISTED = 100


def generate_markdown_report(report: TestReport) -> str:
    """The report as Markdown that renders the same whatever the agent answered.

    What did not pass is listed first, each with its reason and a link to its section.

    Args:
        report: The results and their summary.

    Returns:
        The whole document.
    """
    return "\n".join(_document(report)).rstrip("\n") + "\n"


def _document(report: TestReport) -> Iterator[str]:
    yield from _head(report)
    yield from _failures(report)
    yield from ("## Summary", "", *_summary_table(report.summary), "")
    yield from _averages(report)
    yield from ("---", "", "## Test Results", "")
    if not report.results:
        yield from ("*No test was run.*", "")
    for number, result in enumerate(report.results, 1):
        yield from case_section(result, number)
    yield from ("---", "", "## Report Summary", "", _last_line(report.summary), "")


def _head(report: TestReport) -> Iterator[str]:
    yield from (f"# Test Report: {inline(report.agent_name)}", "")
    if report.interrupted:
        planned = report.planned_tests
        of_all = "" if planned is None else f" of {planned}"
        yield from (f"**Interrupted: {len(report.results)}{of_all} tests ran.**", "")
    if report.stopped is not None:
        yield from (f"**Stopped: {inline(report.stopped)}**", "")
    if report.selection is not None:
        yield from (f"**Selected: {inline(str(report.selection), 1_000)}**", "")
    for note in report.notes:
        yield from (f"**Note: {inline(note, 1_000)}**", "")
    yield f"- **Configuration:** {code(report.agent_config_path)}"
    yield f"- **Generated:** {inline(report.timestamp)}"
    yield f"- **HoloDeck Version:** {inline(report.holodeck_version)}"
    if report.environment:
        facts = ", ".join(f"{name}: {value}" for name, value in report.environment.items())
        yield f"- **Environment:** {inline(facts, 1_000)}"
    yield ""


def _failures(report: TestReport) -> Iterator[str]:
    failed = [
        (number, result) for number, result in enumerate(report.results, 1) if not result.passed
    ]
    if not failed:
        return
    yield from ("## Not Passed", "")
    for number, result in failed[:_FAILURES_LISTED]:
        symbol = STATUS[result.outcome].split()[0]
        reasons = result.reasons()
        why = f": {inline(reasons[0])}" if reasons else ""
        yield f"- {symbol} [{display_name(result)}](#{anchor(number)}){why}"
    if len(failed) > _FAILURES_LISTED:
        yield f"- … and {len(failed) - _FAILURES_LISTED} more"
    yield ""


_KINDS = (
    ("Agent Errors", Outcome.AGENT_ERROR),
    ("Metric Errors", Outcome.METRIC_ERROR),
    ("Unchecked", Outcome.UNCHECKED),
)


def _summary_table(summary: ReportSummary) -> list[str]:
    rows = [
        ("Total Tests", str(summary.total_tests)),
        ("Passed", str(summary.passed)),
        ("Failed", _failed(summary)),
        ("Pass Rate", percent(summary.pass_rate, 2)),
        ("Total Duration", _duration(summary.total_duration_ms)),
        ("Wall Time", _duration(summary.wall_time_ms)),
    ]
    spent = summary.token_usage
    if spent.total_tokens:
        parts = f"{spent.prompt_tokens} prompt, {spent.completion_tokens} completion"
        rows.append(("Tokens", f"{spent.total_tokens} ({parts})"))
    if summary.judge_calls:
        tokens = summary.judge_usage.total_tokens
        rows.append(("Judges", f"{summary.judge_calls} calls, {tokens} tokens"))
    if summary.cost is not None:
        rows.append(("Cost", inline(in_words(summary.cost), 1_000)))
    return table(("Metric", "Value"), rows)


def _failed(summary: ReportSummary) -> str:
    counts = ((title, summary.outcomes.get(kind, 0)) for title, kind in _KINDS)
    kinds = ", ".join(f"{title}: {count}" for title, count in counts if count)
    return f"{summary.failed} (of these {kinds})" if kinds else str(summary.failed)


def _averages(report: TestReport) -> Iterator[str]:
    summary = report.summary
    names = list(dict.fromkeys([*summary.average_scores, *summary.metrics_errored]))
    if not names:
        return
    scales = {row.metric_name: row.scale for result in report.results for row in result.rows}
    yield from ("### Average Metric Scores", "")
    rows = [
        (
            inline(name),
            _average(summary, name),
            _standard_error(summary, name),
            inline(scales.get(name) or "–"),
            str(summary.metrics_evaluated.get(name, 0)),
            str(summary.metrics_errored.get(name, 0)),
        )
        for name in names
    ]
    header = ("Metric", "Average Score", "Standard Error", "Scale", "Scored", "Errors")
    yield from (*table(header, rows), "")


def _average(summary: ReportSummary, name: str) -> str:
    score = summary.average_scores.get(name)
    return "not computed" if score is None else f"{score:.2f}"


def _standard_error(summary: ReportSummary, name: str) -> str:
    error = summary.standard_errors.get(name)
    return "–" if error is None else f"± {error:.2f}"


def _last_line(summary: ReportSummary) -> str:
    passed = f"✅ **{summary.passed} tests passed**" if summary.passed else "**0 tests passed**"
    failed = f"❌ **{summary.failed} tests failed**" if summary.failed else "**0 tests failed**"
    return f"{passed} | {failed} | **Pass Rate: {percent(summary.pass_rate, 2)}**"


def _duration(elapsed_ms: int) -> str:
    return f"{elapsed_ms}ms ({elapsed_ms / 1000:.1f}s)"
