"""Summarizes results: counts, averages, token usage and pass@k, in words; the exit code."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import comb, fsum, sqrt
from statistics import fmean

from holodeck.errors import ExitCode, worst_exit_code
from holodeck.lib.reports.costs import describe_cost, total_cost
from holodeck.lib.support.text import plural
from holodeck.models.results.outcome import RecordingUse
from holodeck.models.test_result import Outcome, ReportSummary, TestReport, TestResult
from holodeck.models.token_usage import TokenUsage

Estimator = Callable[[int, int, int], float]
_UNDECIDED = {Outcome.AGENT_ERROR, Outcome.METRIC_ERROR}
_DECIDED = {Outcome.PASSED, Outcome.FLAKY, Outcome.FAILED, Outcome.UNCHECKED}


def pass_any(passed: int, ran: int, k: int) -> float:
    """Return the probability that any of k runs, drawn from all, passed."""
    return 1 - comb(ran - passed, k) / comb(ran, k)


def pass_all(passed: int, ran: int, k: int) -> float:
    """Return the probability that all of k runs, drawn from all, passed."""
    return comb(passed, k) / comb(ran, k)


def summarize(results: Iterable[TestResult], wall_time_ms: int) -> ReportSummary:
    """Return the run in numbers.

    An average includes all rows with a score; `metrics_errored` counts the others.
    """
    results = list(results)
    runs = [run for result in results for run in result.single_runs]
    rows = [row for result in results for row in result.rows]
    judges = [cost for result in results for cost in result.judge_costs]
    simulators = [cost for result in results for cost in result.simulator_costs]
    outcomes = Counter(result.outcome.value for result in results)
    scores: dict[str, list[float]] = {}
    for row in rows:
        if row.score is not None:
            scores.setdefault(row.metric_name, []).append(row.score)
    repeats = [result.repeats for result in results if result.repeats is not None]
    are_whole = all(
        len(case.runs) == case.planned and all(run.outcome in _DECIDED for run in case.runs)
        for case in repeats
    )
    repeated = [(case.passed, case.planned) for case in repeats] if are_whole else []
    skipped = outcomes.get(Outcome.SKIPPED, 0)
    passed, ran = sum(result.passed for result in results), len(results) - skipped
    return ReportSummary(
        total_tests=len(results),
        passed=passed,
        failed=ran - passed,
        flaky=outcomes.get(Outcome.FLAKY, 0),
        skipped=skipped,
        pass_rate=100 * passed / ran if ran else 0,
        total_duration_ms=sum(result.execution_time_ms for result in results),
        wall_time_ms=wall_time_ms,
        outcomes=dict(outcomes),
        metrics_evaluated={name: len(values) for name, values in scores.items()},
        metrics_errored=dict(Counter(row.metric_name for row in rows if row.score is None)),
        average_scores={name: fmean(values) for name, values in scores.items()},
        standard_errors={
            name: _standard_error(values) for name, values in scores.items() if values[1:]
        },
        token_usage=sum(
            (run.token_usage for run in runs if run.token_usage is not None), TokenUsage()
        ),
        unknown_token_usage=sum(
            any(
                run.token_usage is None and run.agent_time_ms is not None
                for run in result.single_runs
            )
            for result in results
        ),
        pass_at_k=_mean_estimates(repeated, pass_any),
        pass_all_k=_mean_estimates(repeated, pass_all),
        judge_calls=sum(cost.calls for cost in judges),
        judge_usage=sum((cost.tokens for cost in judges), TokenUsage()),
        cost=total_cost(results),
        recordings=_sum_of_recordings(run.recording for run in runs),
        simulator_calls=sum(cost.calls for cost in simulators),
        simulator_usage=sum((cost.tokens for cost in simulators), TokenUsage()),
    )


def _sum_of_recordings(uses: Iterable[RecordingUse | None]) -> RecordingUse | None:
    known = [use for use in uses if use is not None]
    if not known:
        return None
    models = {use.model for use in known if use.replayed}
    return RecordingUse(
        replayed=sum(use.replayed for use in known),
        live=sum(use.live for use in known),
        unused=sum(use.unused for use in known),
        recorded=min((use.recorded for use in known if use.recorded), default=None),
        model=models.pop() if len(models) == 1 else None,
    )


def describe_recordings(use: RecordingUse) -> str:
    """Return such as `47 replayed, 0 live; recorded 2026-11-15 with openai/gpt-x; 2 unused`."""
    day = f"; recorded {use.recorded}" if use.recorded else ""
    model = f" with {use.model}" if day and use.model else ""
    unused = f"; {plural(use.unused, 'entry', 'entries')} unused" if use.unused else ""
    return f"{use.replayed:,} replayed, {use.live:,} live{day}{model}{unused}"


def _mean_estimates(repeated: Sequence[tuple[int, int]], estimator: Estimator) -> dict[int, float]:
    """Return the mean for each k; a repeated case is how often it passed and how often it ran."""
    fewest = min((ran for _, ran in repeated), default=0)
    return {
        k: fmean(estimator(passed, ran, k) for passed, ran in repeated)
        for k in range(1, fewest + 1)
    }


_COUNTED = {
    Outcome.FAILED: "failed",
    Outcome.AGENT_ERROR: "agent error",
    Outcome.METRIC_ERROR: "metric error",
    Outcome.UNCHECKED: "unchecked",
    Outcome.FLAKY: "flaky",
    Outcome.PASSED: "passed",
    Outcome.SKIPPED: "skipped",
}
"""Outcome → its name, the most telling first."""


def count_outcomes(outcomes: Mapping[str, int]) -> dict[Outcome, str]:
    """Return such as `2 agent errors` for each outcome that there is, the most telling first."""
    return {
        outcome: plural(count, word, word if outcome not in _UNDECIDED else None, form=",")
        for outcome, word in _COUNTED.items()
        if (count := outcomes.get(outcome, 0))
    }


def count_ran(report: TestReport) -> str:
    """Return such as `3 of 5 tests`, of a run that was interrupted."""
    planned = report.planned_tests
    if planned is None:
        return plural(report.ran, "test")
    return f"{report.ran} of {plural(planned, 'test')}"


COST = "Cost"
"""The title of the cost."""


def model_usage(summary: ReportSummary) -> Iterator[tuple[str, str]]:
    """Yield what the models of a run took, as title and text: tokens, calls and cost."""
    usage, unknown = summary.token_usage, summary.unknown_token_usage
    if usage.total_tokens:
        parts = f"{usage.prompt_tokens:,} prompt, {usage.completion_tokens:,} completion"
        note = f", unknown for {unknown} of {summary.total_tests} tests" if unknown else ""
        yield "Tokens", f"{usage.total_tokens:,} ({parts}){note}"
    for title, calls, usage in (
        ("Judges", summary.judge_calls, summary.judge_usage),
        ("Simulated users", summary.simulator_calls, summary.simulator_usage),
    ):
        if calls:
            tokens = plural(usage.total_tokens, "token", form=",")
            yield title, f"{plural(calls, 'call')}, {tokens}"
    if summary.recordings is not None:
        yield "Recordings", describe_recordings(summary.recordings)
    if summary.cost is not None:
        yield COST, describe_cost(summary.cost)


def _standard_error(scores: Sequence[float]) -> float:
    """Return that of the mean; `statistics` would compute with fractions, which is slow."""
    mean = fmean(scores)
    variance = fsum((score - mean) ** 2 for score in scores) / (len(scores) - 1)
    return sqrt(variance / len(scores))


_WORST_FIRST = (
    (Outcome.AGENT_ERROR, ExitCode.EXECUTION),
    (Outcome.METRIC_ERROR, ExitCode.EVALUATION),
    (Outcome.FAILED, ExitCode.TEST_FAILED),
    (Outcome.UNCHECKED, ExitCode.NOTHING_SELECTED),
)


def exit_code(report: TestReport) -> ExitCode:
    """Return the exit code; the first of 130, 3, 4, 6, 1, 5 and 0 that applies.

    Errors (3, 4) and a used-up budget (6) outrank failures, because the number of failures is not
    known. 5 means that no case ran, a case was unchecked, or the run stopped early. A merged report
    has the worst exit code of its runs, and is not whole without all of them.
    """
    if report.merged:
        is_whole = report.ran and report.stopped is None
        own = ExitCode.PASSED if is_whole else ExitCode.NOTHING_SELECTED
        return worst_exit_code([own, *(run.exit_code for run in report.merged)])
    if report.interrupted:
        return ExitCode.INTERRUPTED
    seen = {Outcome(outcome) for outcome in report.summary.outcomes}
    if report.stopped_by == "budget" and seen.isdisjoint(_UNDECIDED):
        return ExitCode.BUDGET
    if not report.ran:
        return ExitCode.NOTHING_SELECTED
    otherwise = ExitCode.PASSED if report.stopped is None else ExitCode.NOTHING_SELECTED
    return next((code for outcome, code in _WORST_FIRST if outcome in seen), otherwise)
