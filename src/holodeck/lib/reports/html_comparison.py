"""The comparison of two runs, or of two agents, as one HTML page."""

import json
from collections.abc import Iterator

from holodeck.lib.reports.against import (
    comparison_notes,
    conclusions,
    count_rows,
    describe_trajectories,
    side_label,
    total_rows,
)
from holodeck.lib.reports.html import row_of
from holodeck.lib.reports.page_file import Page, PageCase, Row, json_line, render_page
from holodeck.lib.support.text import one_line
from holodeck.models.records.comparison import ComparisonReport, Pair, PairVerdict
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_result import TestResult

_MAX_REASON = 300


def generate_html_comparison(report: ComparisonReport) -> str:
    """Return the comparison as an HTML page."""
    broken = list(_broken(report))
    verdict = "undecided" if not report.is_complete else "no regressions"
    facts = [("A", side_label(report.first)), ("B", side_label(report.second))]
    return render_page(
        Page(
            title=f"Comparison: {report.second.name}",
            kind="comparison",
            verdict="regressions" if broken else verdict,
            verdict_text="; ".join(f"{title}: {count}" for title, count in count_rows(report)),
            facts=[*facts, *(("Changed", change) for change in report.changes)],
            figures=[
                (row.name.capitalize(), f"{row.first} → {row.second} ({row.change})")
                for row in total_rows(report)
            ],
            notes=list(comparison_notes(report)),
            conclusions=list(conclusions(report)),
            currency=report.currency,
            cases=_cases(report),
            not_passed=len(broken),
            listed=broken,
        )
    )


def _broken(report: ComparisonReport) -> Iterator[Row]:
    """Yield what the page lists of regressions and new failures, without reading other results."""
    for pair in report.pairs:
        if pair.verdict is PairVerdict.ONLY_FIRST:
            yield _pair_case(report, pair).row
    for result in _new(report):
        if result.outcome is Outcome.FAILED:
            yield _new_case(result).row


def _cases(report: ComparisonReport) -> Iterator[PageCase]:
    for pair in report.pairs:
        yield _pair_case(report, pair)
    if not report.is_of_runs:
        return
    yield from map(_new_case, _new(report))
    paired = {pair.first_at for pair in report.pairs}
    for at, result in enumerate(report.first.report.results):
        if at not in paired:
            yield _lone_case(result, "vanished", "first")


def _new(report: ComparisonReport) -> list[TestResult]:
    """Return those results of the second run whose case the first one does not have."""
    if not report.is_of_runs:
        return []
    paired = {pair.second_at for pair in report.pairs}
    return [result for at, result in enumerate(report.second.report.results) if at not in paired]


def _pair_case(report: ComparisonReport, pair: Pair) -> PageCase:
    before, after = report.first.report.results, report.second.report.results
    first = None if pair.first_at is None else before[pair.first_at]
    second = None if pair.second_at is None else after[pair.second_at]
    row: Row = {"name": pair.name, "id": pair.id, "suite": pair.suite, "input": pair.input}
    result = first if second is None else second
    if result is not None:
        row = row_of(result)
    row |= {
        "outcome": pair.verdict.value,
        "trajectories": pair.trajectories.state,
        "reason": one_line(_reason(pair), _MAX_REASON),
        "delta": _delta(pair),
    }
    # A baseline has no inputs and no answers: its result would look like one without a response.
    is_baseline = first is not None and not first.test_input and bool(pair.input)
    sides = {"first": None if is_baseline else first, "second": second}
    parts = [f'"{side}":{json_line(part)}' for side, part in sides.items() if part is not None]
    calls = json.dumps(describe_trajectories(pair.trajectories))
    line = ",".join([*parts, f'"pair":{json_line(pair)}', f'"calls":{calls}'])
    return PageCase(row, f"{{{line}}}")


def _new_case(result: TestResult) -> PageCase:
    return _lone_case(
        result, "new_failure" if result.outcome is Outcome.FAILED else "new", "second"
    )


def _lone_case(result: TestResult, verdict: str, side: str) -> PageCase:
    return PageCase(row_of(result) | {"outcome": verdict}, f'{{"{side}":{json_line(result)}}}')


def _reason(pair: Pair) -> str:
    """Return what a reader should know first of the pair."""
    if pair.verdict is not PairVerdict.BOTH and pair.second_reasons:
        return f"B: {pair.second_reasons[0]}"
    if pair.verdict is not PairVerdict.BOTH and pair.first_reasons:
        return f"A: {pair.first_reasons[0]}"
    is_parted = pair.trajectories.state == "parted"
    return describe_trajectories(pair.trajectories) if is_parted else pair.input


def _delta(pair: Pair) -> str:
    """Return the largest change of a score, and the change of the latency."""
    changes = [score.delta for score in pair.scores.values() if score.delta]
    parts = [f"score {max(changes, key=abs):+.2f}"] if changes else []
    if pair.latency_ms.delta:
        parts.append(f"{pair.latency_ms.delta:+,.0f} ms")
    return " · ".join(parts)
