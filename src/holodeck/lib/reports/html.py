"""The report as one HTML page: no server, no network, and any text shown as it is."""

from collections.abc import Iterator, Sequence

from holodeck.lib.reports.costs import describe_cost
from holodeck.lib.reports.page_file import (
    MAX_LISTED,
    Page,
    PageCase,
    Row,
    json_line,
    render_page,
)
from holodeck.lib.reports.summary import unknown_usage_note
from holodeck.lib.support.text import one_line, percent, plural
from holodeck.models.records.record import PastOutcome
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_result import TestReport, TestResult

_MAX_REASON = 300
_MAX_INPUT = 200


def generate_html_report(report: TestReport) -> str:
    """Return the report as an HTML page."""
    return render_page(page_of(report))


def page_of(
    report: TestReport,
    kind: str = "Test Report",
    thing: str = "test case",
    trends: Sequence[Sequence[PastOutcome]] = (),
) -> Page:
    """Return the page about a run.

    Args:
        report: The results.
        kind: What the page is called.
        thing: What its results are about.
        trends: For each result, how its case ended in recorded runs; empty if that is unknown.
    """
    not_passed = [result for result in report.results if not result.outcome.is_pass]
    return Page(
        title=f"{kind}: {report.agent_name}",
        verdict=verdict_of(report),
        verdict_text=", ".join(_counts(report, thing)),
        facts=list(_facts(report)),
        figures=list(_figures(report)),
        notes=list(_notes(report)),
        thing=thing,
        currency=None if report.summary.cost is None else report.summary.cost.currency,
        metrics=list(_metrics(report)),
        outcomes=report.summary.outcomes,
        cases=(page_case(result) for result in report.results),
        not_passed=len(not_passed),
        listed=[row_of(result) for result in not_passed[:MAX_LISTED]],
        more={"trends": [[point.model_dump(mode="json") for point in trend] for trend in trends]}
        if trends
        else {},
    )


def verdict_of(report: TestReport) -> str:
    """Return one word about the run."""
    if report.interrupted:
        return "interrupted"
    if report.stopped is not None:
        return "stopped"
    if not report.ran:
        return "nothing ran"
    if report.passed:
        return "passed"
    return "failed" if Outcome.FAILED in report.summary.outcomes else "undecided"


_COUNTED = (
    (Outcome.FAILED, "failed"),
    (Outcome.AGENT_ERROR, "agent error"),
    (Outcome.METRIC_ERROR, "metric error"),
    (Outcome.UNCHECKED, "unchecked"),
    (Outcome.FLAKY, "flaky"),
    (Outcome.PASSED, "passed"),
    (Outcome.SKIPPED, "skipped"),
)


def _counts(report: TestReport, thing: str) -> Iterator[str]:
    yield plural(report.summary.total_tests, thing)
    for outcome, words in _COUNTED:
        count = report.summary.outcomes.get(outcome, 0)
        if count:
            yield plural(count, words) if words.endswith("error") else f"{count} {words}"


def _facts(report: TestReport) -> Iterator[tuple[str, str]]:
    yield "Agent", report.agent_name
    if report.agent_config_path:
        yield "Configuration", report.agent_config_path
    yield "Time", report.timestamp
    if report.holodeck_version:
        yield "HoloDeck version", report.holodeck_version
    yield from report.environment.items()
    if report.prompts:
        yield "Prompts", ", ".join(map(str, report.prompts))
    if report.selection is not None:
        yield "Selected", str(report.selection)
    for run in report.merged:
        state = " (interrupted)" if run.interrupted else " (stopped)" if run.stopped else ""
        yield f"Run of {run.title}", f"{plural(run.tests, 'test')}, {run.timestamp}{state}"


def _figures(report: TestReport) -> Iterator[tuple[str, str]]:
    summary = report.summary
    yield "Pass rate", percent(summary.pass_rate, 1)
    yield "Wall time", f"{summary.wall_time_ms / 1000:,.1f} s"
    if summary.token_usage.total_tokens:
        note = unknown_usage_note(summary)
        yield "Tokens", f"{summary.token_usage.total_tokens:,}{note}"
    if summary.judge_calls:
        tokens = f"{summary.judge_usage.total_tokens:,} tokens"
        yield "Judges", f"{plural(summary.judge_calls, 'call')}, {tokens}"
    if summary.cost is not None:
        yield "Cost", describe_cost(summary.cost)


def _notes(report: TestReport) -> Iterator[str]:
    if report.interrupted:
        yield f"Interrupted: {plural(report.ran, 'test')} ran."
    if report.stopped is not None:
        yield f"Stopped: {report.stopped}"
    yield from report.notes


def _metrics(report: TestReport) -> Iterator[dict[str, object]]:
    summary = report.summary
    for name in {**summary.average_scores, **summary.metrics_errored}:
        yield {
            "name": name,
            "mean": summary.average_scores.get(name),
            "error": summary.standard_errors.get(name),
            "scored": summary.metrics_evaluated.get(name, 0),
            "broken": summary.metrics_errored.get(name, 0),
        }


def page_case(result: TestResult) -> PageCase:
    """Return a result as a row of the list, and as what the page shows when it is opened."""
    return PageCase(row_of(result), json_line(result, reasons=result.reasons()))


def row_of(result: TestResult) -> Row:
    """Return what the list shows of a result, and filters and sorts it by."""
    tokens = [run.token_usage.total_tokens for run in result.single_runs if run.token_usage]
    row: Row = {
        "id": result.test_id,
        "name": result.test_name,
        "agent": result.agent_name,
        "suite": result.suite,
        "outcome": result.outcome.value,
        "tags": result.tags,
        "agents": result.agents,
        "location": result.location,
        "ms": result.execution_time_ms,
        "cost": None if result.cost is None else result.cost.total,
        "tokens": sum(tokens) or None,
        "scores": _scores(result),
        "reason": _first_line(result.reasons()),
        "input": one_line(result.test_input, _MAX_INPUT),
    }
    return {key: value for key, value in row.items() if value not in (None, [], {}, "")}


def _first_line(reasons: Sequence[str]) -> str:
    more = f" (and {len(reasons) - 1} more)" if reasons[1:] else ""
    return one_line(reasons[0], _MAX_REASON) + more if reasons else ""


def _scores(result: TestResult) -> dict[str, list[float | bool | None]]:
    """Return for each metric its mean score, and whether it passed each time."""
    found: dict[str, list[float | bool | None]] = {}
    for name in dict.fromkeys(row.metric_name for row in result.rows):
        rows = [row for row in result.rows if row.metric_name == name]
        scores = [row.score for row in rows if row.score is not None]
        verdicts = [False if row.error else row.passed for row in rows]
        passed = None if set(verdicts) == {None} else False not in verdicts
        found[name] = [round(sum(scores) / len(scores), 4) if scores else None, passed]
    return found
