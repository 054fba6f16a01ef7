"""Summarizes results: counts, averages, token usage and pass@k; chooses the exit code."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import comb, fsum, sqrt
from statistics import fmean

from holodeck.errors import ExitCode, worst_exit_code
from holodeck.lib.reports.costs import total_cost
from holodeck.models.outcome import ModelCost
from holodeck.models.test_result import (
    MetricResult,
    Outcome,
    Repeats,
    ReportSummary,
    TestReport,
    TestResult,
)
from holodeck.models.token_usage import TokenUsage

Estimator = Callable[[int, int, int], float]
_DECIDED = {Outcome.PASSED, Outcome.FLAKY, Outcome.FAILED, Outcome.UNCHECKED}


def pass_any(passed: int, ran: int, k: int) -> float:
    """Return the probability that at least one of k runs, drawn from all, passed."""
    return 1 - comb(ran - passed, k) / comb(ran, k)


def pass_all(passed: int, ran: int, k: int) -> float:
    """Return the probability that all of k runs, drawn from all, passed."""
    return comb(passed, k) / comb(ran, k)


def estimate_passes(results: Iterable[TestResult], estimator: Estimator) -> dict[int, float]:
    """Return the mean over the repeated cases for each k, up to the fewest repetitions of a case.

    Empty if a repeated case has repetitions that were not run or are undecided: leaving them out
    would bias the estimate.
    """
    repeats = [one.repeats for one in results if one.repeats is not None]
    if not repeats or not all(map(_is_whole, repeats)):
        return {}
    fewest = min(one.planned for one in repeats)
    return {k: _mean_estimate(repeats, k, estimator) for k in range(1, fewest + 1)}


def _is_whole(repeats: Repeats) -> bool:
    all_ran = len(repeats.runs) == repeats.planned
    return all_ran and all(one.outcome in _DECIDED for one in repeats.runs)


def _mean_estimate(repeats: Sequence[Repeats], k: int, estimator: Estimator) -> float:
    return fmean(estimator(one.passed, one.planned, k) for one in repeats)


def summarize(results: Sequence[TestResult], wall_time_ms: int) -> ReportSummary:
    """Return the run in numbers.

    An average includes all rows with a score; `metrics_errored` counts the others.
    """
    passed = sum(result.passed for result in results)
    outcomes = Counter(str(result.outcome) for result in results)
    ran = len(results) - outcomes[Outcome.SKIPPED]
    rows = [row for result in results for row in result.rows]
    runs = [run for result in results for run in result.single_runs]
    judged = [row for run in runs for row in run.rows]
    scores = _scores_by_metric(rows)
    judges = _add_costs(run.judge_cost for run in runs)
    simulators = _add_costs(run.simulator_cost for run in runs)
    return ReportSummary(
        total_tests=len(results),
        passed=passed,
        failed=ran - passed,
        flaky=outcomes[Outcome.FLAKY],
        skipped=outcomes[Outcome.SKIPPED],
        pass_rate=100 * passed / ran if ran else 0,
        total_duration_ms=sum(result.execution_time_ms for result in results),
        wall_time_ms=wall_time_ms,
        outcomes=dict(outcomes),
        metrics_evaluated={name: len(found) for name, found in scores.items()},
        metrics_errored=dict(Counter(row.metric_name for row in rows if row.score is None)),
        average_scores={name: _mean(found) for name, found in scores.items()},
        standard_errors={
            name: _standard_error(found) for name, found in scores.items() if found[1:]
        },
        token_usage=_add_usages(run.token_usage for run in runs),
        unknown_token_usage=sum(_lacks_usage(result) for result in results),
        pass_at_k=estimate_passes(results, pass_any),
        pass_all_k=estimate_passes(results, pass_all),
        judge_calls=sum(row.judge_calls for row in judged) + judges.calls,
        judge_usage=_add_usages(row.judge_tokens for row in judged) + judges.tokens,
        cost=total_cost(results),
        simulator_calls=simulators.calls,
        simulator_usage=simulators.tokens,
    )


def _lacks_usage(result: TestResult) -> bool:
    """Return whether the token usage of any run of the agent is unknown."""
    return any(
        run.token_usage is None and run.agent_time_ms is not None for run in result.single_runs
    )


def unknown_usage_note(summary: ReportSummary) -> str:
    """Return a note that the usage of some tests is unknown; empty if all is known."""
    count = summary.unknown_token_usage
    return f", unknown for {count} of {summary.total_tests} tests" if count else ""


def _scores_by_metric(rows: Sequence[MetricResult]) -> dict[str, list[float]]:
    scores: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.score is not None:
            scores[row.metric_name].append(row.score)
    return scores


def _mean(scores: Sequence[float]) -> float:
    return fsum(scores) / len(scores)


def _standard_error(scores: Sequence[float]) -> float:
    """Return that of the mean; `statistics` would compute with fractions, which is slow."""
    mean = _mean(scores)
    variance = fsum((score - mean) ** 2 for score in scores) / (len(scores) - 1)
    return sqrt(variance / len(scores))


def _add_usages(usages: Iterable[TokenUsage | None]) -> TokenUsage:
    return sum((usage for usage in usages if usage is not None), TokenUsage())


def _add_costs(costs: Iterable[ModelCost | None]) -> ModelCost:
    known = [cost for cost in costs if cost is not None]
    return ModelCost(
        calls=sum(cost.calls for cost in known), tokens=_add_usages(cost.tokens for cost in known)
    )


_WORST_FIRST = (
    (Outcome.AGENT_ERROR, ExitCode.EXECUTION),
    (Outcome.METRIC_ERROR, ExitCode.EVALUATION),
    (Outcome.FAILED, ExitCode.TEST_FAILED),
    (Outcome.UNCHECKED, ExitCode.NOTHING_SELECTED),
)

_UNDECIDED = {Outcome.AGENT_ERROR, Outcome.METRIC_ERROR}


def exit_code(report: TestReport) -> ExitCode:
    """Return the exit code; the first of 130, 3, 4, 6, 1, 5 and 0 that applies.

    Errors (3, 4) and a used-up budget (6) outrank failures, because the number of failures is not
    known. 5 means that no case ran, a case was unchecked, or the run stopped early. A merged report
    has the worst exit code of its runs, and is not whole without all of them.
    """
    if report.merged:
        is_whole = report.ran and report.stopped is None
        own = ExitCode.PASSED if is_whole else ExitCode.NOTHING_SELECTED
        return worst_exit_code([own, *(one.exit_code for one in report.merged)])
    if report.interrupted:
        return ExitCode.INTERRUPTED
    seen = {result.outcome for result in report.results}
    if report.stopped_by == "budget" and seen.isdisjoint(_UNDECIDED):
        return ExitCode.BUDGET
    if not report.ran:
        return ExitCode.NOTHING_SELECTED
    otherwise = ExitCode.PASSED if report.stopped is None else ExitCode.NOTHING_SELECTED
    return next((code for outcome, code in _WORST_FIRST if outcome in seen), otherwise)
