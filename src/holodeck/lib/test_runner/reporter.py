"""The Markdown report of a run."""

from collections.abc import Callable, Iterator

from holodeck.lib.reports.case_section import STATUS, anchor, case_section, display_name
from holodeck.lib.reports.costs import describe_cost
from holodeck.lib.reports.markdown import code, inline, table
from holodeck.lib.reports.summary import unknown_usage_note
from holodeck.lib.text import percent, plural
from holodeck.models.test_result import Outcome, ReportSummary, TestReport, TestResult
from holodeck.models.token_usage import TokenUsage

_MAX_LISTED = 100
_MAX_ESTIMATES = 5


def generate_markdown_report(report: TestReport) -> str:
    """Return the report as Markdown; no agent response can change how it renders.

    Tests that did not pass are listed first, each with its reason and a link to its section.

    Args:
        report: The results and their summary.

    Returns:
        The whole document.
    """
    return "\n".join(_document(report)).rstrip("\n") + "\n"


def _document(report: TestReport) -> Iterator[str]:
    yield from _head(report)
    yield from _highlights(report)
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
        ran = plural(report.ran, "test")
        if planned is not None:
            ran = f"{report.ran} of {plural(planned, 'test')}"
        yield from (f"**Interrupted: {ran} ran.**", "")
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
    if report.prompts:
        prompts = ", ".join(map(str, report.prompts))
        yield f"- **Prompts:** {inline(prompts, 1_000)}"
    yield ""


def _highlights(report: TestReport) -> Iterator[str]:
    yield from _list_tests("Not Passed", report, _has_failed)
    yield from _list_tests("Flaky", report, lambda one: one.outcome is Outcome.FLAKY)
    yield from _list_tests("Skipped", report, lambda one: one.outcome is Outcome.SKIPPED)


def _has_failed(result: TestResult) -> bool:
    return not result.passed and result.outcome is not Outcome.SKIPPED


def _list_tests(
    title: str, report: TestReport, belongs: Callable[[TestResult], bool]
) -> Iterator[str]:
    """Yield the tests of one kind with their reasons, each with a link to its section."""
    found = [(number, one) for number, one in enumerate(report.results, 1) if belongs(one)]
    if not found:
        return
    yield from (f"## {title}", "")
    for number, result in found[:_MAX_LISTED]:
        symbol = STATUS[result.outcome].split()[0]
        reasons = result.reasons()
        why = f": {inline(reasons[0])}" if reasons else ""
        yield f"- {symbol} [{display_name(result)}](#{anchor(number)}){why}"
    if len(found) > _MAX_LISTED:
        yield f"- … and {len(found) - _MAX_LISTED} more"
    yield ""


_KINDS = (
    ("Agent Errors", Outcome.AGENT_ERROR),
    ("Metric Errors", Outcome.METRIC_ERROR),
    ("Unchecked", Outcome.UNCHECKED),
)


def _summary_table(summary: ReportSummary) -> list[str]:
    rows = [
        ("Total Tests", str(summary.total_tests)),
        ("Passed", _format_passed(summary)),
        ("Failed", _format_failed(summary)),
        *([("Skipped", str(summary.skipped))] if summary.skipped else []),
        ("Pass Rate", percent(summary.pass_rate, 2)),
        ("Total Duration", _duration(summary.total_duration_ms)),
        ("Wall Time", _duration(summary.wall_time_ms)),
    ]
    usage = summary.token_usage
    if usage.total_tokens:
        parts = f"{usage.prompt_tokens} prompt, {usage.completion_tokens} completion"
        rows.append(("Tokens", f"{usage.total_tokens} ({parts}){unknown_usage_note(summary)}"))
    if summary.judge_calls:
        rows.append(("Judges", _calls_and_tokens(summary.judge_calls, summary.judge_usage)))
    if summary.cost is not None:
        rows.append(("Cost", inline(describe_cost(summary.cost), 1_000)))
    if summary.simulator_calls:
        rows.append(
            ("Simulated Users", _calls_and_tokens(summary.simulator_calls, summary.simulator_usage))
        )
    for title, estimates in (("pass@k", summary.pass_at_k), ("pass^k", summary.pass_all_k)):
        if estimates:
            rows.append((title, _estimates(estimates)))
    return table(("Metric", "Value"), rows)


def _estimates(estimates: dict[int, float]) -> str:
    """Return the first few estimates and the last."""
    ks = sorted(estimates)
    shown = [*ks[:_MAX_ESTIMATES], *ks[_MAX_ESTIMATES:][-1:]]
    return ", ".join(f"k={k}: {100 * estimates[k]:.1f} %" for k in shown)


def _format_passed(summary: ReportSummary) -> str:
    return (
        f"{summary.passed} (of these Flaky: {summary.flaky})"
        if summary.flaky
        else str(summary.passed)
    )


def _format_failed(summary: ReportSummary) -> str:
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


def _calls_and_tokens(calls: int, usage: TokenUsage) -> str:
    return f"{plural(calls, 'call')}, {plural(usage.total_tokens, 'token')}"


def _last_line(summary: ReportSummary) -> str:
    passed = f"{'✅ ' if summary.passed else ''}**{plural(summary.passed, 'test')} passed**"
    failed = f"{'❌ ' if summary.failed else ''}**{plural(summary.failed, 'test')} failed**"
    skipped = f" | ⏭️ **{plural(summary.skipped, 'test')} skipped**" if summary.skipped else ""
    return f"{passed} | {failed}{skipped} | **Pass Rate: {percent(summary.pass_rate, 2)}**"


def _duration(elapsed_ms: int) -> str:
    return f"{elapsed_ms}ms ({elapsed_ms / 1000:.1f}s)"
