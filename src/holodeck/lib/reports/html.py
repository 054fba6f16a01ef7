"""A report, or a comparison, as an HTML page: no server, no network, any text shown as it is."""

import json
from collections.abc import Iterator, Mapping, Sequence

from holodeck.lib.reports.against import (
    comparison_notes,
    conclusions,
    count_rows,
    describe_trajectories,
    side_label,
    total_rows,
)
from holodeck.lib.reports.costs import describe_cost, money
from holodeck.lib.reports.page_file import (
    MAX_LISTED,
    Page,
    PageCase,
    Row,
    json_line,
    render_page,
)
from holodeck.lib.reports.summary import COST, count_outcomes, model_usage
from holodeck.lib.support.text import one_line, percent, plural
from holodeck.models.records.comparison import ComparisonReport, Pair, PairVerdict
from holodeck.models.records.record import CaseTrend, PastOutcome, RunLine, RunTrends
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
    past = [
        [point.model_dump(mode="json", exclude={"reason"}) for point in trend] for trend in trends
    ]
    return Page(
        title=f"{kind}: {report.agent_name}",
        verdict=verdict_of(report),
        counts=", ".join(
            [
                plural(report.summary.total_tests, thing),
                *count_outcomes(report.summary.outcomes).values(),
            ]
        ),
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
        more={"trends": past} if past else {},
    )


def verdict_of(report: TestReport) -> str:
    """Return a word about the run."""
    if report.interrupted:
        return "interrupted"
    if report.stopped is not None:
        return "stopped"
    return _verdict(report.ran, report.summary.outcomes, passed=report.passed)


def _verdict(ran: int, outcomes: Mapping[str, int], *, passed: bool) -> str:
    if not ran:
        return "nothing ran"
    if passed:
        return "passed"
    return "failed" if Outcome.FAILED in outcomes else "undecided"


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
    if report.summary.cost is not None:
        yield COST, describe_cost(report.summary.cost)
    for run in report.merged:
        state = " (interrupted)" if run.interrupted else " (stopped)" if run.stopped else ""
        yield f"Run of {run.title}", f"{plural(run.tests, 'test')}, {run.timestamp}{state}"


def _figures(report: TestReport) -> Iterator[tuple[str, str]]:
    summary = report.summary
    yield "Pass rate", percent(summary.pass_rate, 1)
    yield "Wall time", f"{summary.wall_time_ms / 1000:,.1f} s"
    usage = dict(model_usage(summary))
    if summary.cost is not None:  # what it consists of is among the facts
        usage[COST] = money(summary.cost.total, summary.cost.currency)
    yield from usage.items()


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
        "name": result.written_name,
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


def page_of_runs(trends: RunTrends) -> Page:
    """Return the page about all runs: how each case went, and any two runs compared."""
    last = trends.runs[-1]
    failing = [trend for trend in trends.cases if not _last_outcome(trend).is_pass]
    changed = sum(trend.change is not None for trend in trends.cases)
    flaky = sum(trend.is_flaky for trend in trends.cases)
    agents = dict.fromkeys(run.agent for run in trends.runs)
    return Page(
        title=f"Runs: {', '.join(agents)}",
        kind="runs",
        verdict=last.state
        if last.state != "finished"
        else _verdict(last.ran, last.outcomes, passed=last.passed == last.ran),
        counts=f"{plural(len(trends.runs), 'run')}, {plural(len(trends.cases), 'test case')},"
        f" {changed} with a change, {flaky} flaky",
        figures=list(_figures_of_runs(trends.runs)),
        notes=trends.notes,
        currency=last.currency,
        cases=(PageCase(_trend_row(trend, trends), json_line(trend)) for trend in trends.cases),
        not_passed=len(failing),
        listed=[_trend_row(trend, trends) for trend in failing[:MAX_LISTED]],
        more={"runs": [run.model_dump(mode="json") for run in trends.runs]},
    )


def _figures_of_runs(runs: Sequence[RunLine]) -> Iterator[tuple[str, str]]:
    last = runs[-1]
    yield "Last run", percent(100 * last.passed / last.ran, 1) if last.ran else "nothing ran"
    if last.cost is not None and last.currency is not None:
        yield "Its cost", money(last.cost, last.currency)
    costs = [run.cost for run in runs if run.cost is not None]
    if costs and len({run.currency for run in runs if run.cost is not None}) == 1:
        unknown = len(runs) - len(costs)
        note = f" and {plural(unknown, 'run')} of unknown cost" if unknown else ""
        yield "Cost of all runs", money(sum(costs), last.currency or "") + note


def _trend_row(trend: CaseTrend, trends: RunTrends) -> Row:
    """Return what the list shows of a case; `cells` has its outcome in each run."""
    cells = [trend.outcomes.get(run.id) for run in trends.runs]
    row: Row = {
        "id": trend.id,
        "name": trend.name,
        "agent": trend.agent if len({run.agent for run in trends.runs}) > 1 else None,
        "suite": trend.suite,
        "outcome": _last_outcome(trend).value,
        "tags": trend.tags,
        "location": trend.location,
        "input": trend.input,
        "reason": _trend_text(trend, trends.runs),
        "cells": [None if outcome is None else outcome.value for outcome in cells],
        "changed": None if trend.change is None else trend.change.run,
        "flaky": trend.is_flaky or None,
    }
    return {key: value for key, value in row.items() if value not in (None, [], {}, "")}


def _last_outcome(trend: CaseTrend) -> Outcome:
    return list(trend.outcomes.values())[-1]


def _trend_text(trend: CaseTrend, runs: Sequence[RunLine]) -> str:
    """Return what a reader should know first about the past of a case."""
    started = {run.id: run.started[:19].replace("T", " ") or run.id for run in runs}
    parts = []
    if trend.change is not None:
        change = trend.change
        parts.append(
            f"passes {change.passed_since} of {change.ran_since} since {started[change.run]},"
            f" {change.passed_before} of {change.ran_before} before"
        )
    elif trend.failing_since is not None:
        parts.append(f"fails since {started[trend.failing_since]}")
    if trend.is_flaky:
        parts.append("flaky")
    last = [run for run in runs if run.agent == trend.agent][-1]
    if last.selected is None and last.id not in trend.outcomes:
        parts.append("not in the last run")
    passed = sum(past.outcome.is_pass for past in trend.past)
    return "; ".join(parts) or f"passed {passed} of {len(trend.past)}"


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
            counts="; ".join(f"{title}: {count}" for title, count in count_rows(report)),
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
    """Return those results of the second run whose case the first run does not have."""
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
    # A baseline has no inputs and no answers: its result would look as if there were no response.
    is_baseline = first is not None and not first.test_input and bool(pair.input)
    sides = {"first": None if is_baseline else first, "second": second}
    parts = [f'"{side}":{json_line(part)}' for side, part in sides.items() if part is not None]
    calls = json.dumps(describe_trajectories(pair.trajectories))
    line = ",".join([*parts, f'"pair":{json_line(pair)}', f'"calls":{calls}'])
    return PageCase(row, f"{{{line}}}")


def _new_case(result: TestResult) -> PageCase:
    verdict = "new_failure" if result.outcome is Outcome.FAILED else "new"
    return _lone_case(result, verdict, "second")


def _lone_case(result: TestResult, verdict: str, side: str) -> PageCase:
    return PageCase(row_of(result) | {"outcome": verdict}, f'{{"{side}":{json_line(result)}}}')


def _reason(pair: Pair) -> str:
    """Return what a reader should know first of the pair."""
    for who, reasons in (("B", pair.second_reasons), ("A", pair.first_reasons)):
        if pair.verdict is not PairVerdict.BOTH and reasons:
            return f"{who}: {reasons[0]}"
    is_parted = pair.trajectories.state == "parted"
    return describe_trajectories(pair.trajectories) if is_parted else pair.input


def _delta(pair: Pair) -> str:
    """Return the largest change of a score, and the change of the latency."""
    changes = [score.delta for score in pair.scores.values() if score.delta]
    parts = [f"score {max(changes, key=abs):+.2f}"] if changes else []
    if pair.latency_ms.delta:
        parts.append(f"{pair.latency_ms.delta:+,.0f} ms")
    return " · ".join(parts)
