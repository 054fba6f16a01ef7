"""Summarizes results: counts, averages, token usage and pass@k; chooses the exit code."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import comb, fsum, sqrt
from statistics import fmean

from holodeck.errors import ExitCode, worst_exit_code
from holodeck.lib.reports.costs import CostSum
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


def _is_whole(repeats: Repeats) -> bool:
    all_ran = len(repeats.runs) == repeats.planned
    return all_ran and all(run.outcome in _DECIDED for run in repeats.runs)


def _mean_estimates(repeated: Sequence[tuple[int, int]], estimator: Estimator) -> dict[int, float]:
    """Return the mean for each k; a repeated case is how often it passed and how often it ran."""
    fewest = min((ran for _, ran in repeated), default=0)
    return {
        k: fmean(estimator(passed, ran, k) for passed, ran in repeated)
        for k in range(1, fewest + 1)
    }


def summarize(results: Iterable[TestResult], wall_time_ms: int) -> ReportSummary:
    """Return the run in numbers.

    An average includes all rows with a score; `metrics_errored` counts the others.
    """
    totals = _Totals()
    for result in results:
        totals.add(result)
    return totals.summary(wall_time_ms)


class _Totals:
    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        """The sums of the summary, by the name of its field."""
        self._outcomes: Counter[str] = Counter()
        self._scores: dict[str, list[float]] = {}
        self._errored: Counter[str] = Counter()
        self._usages: dict[str, list[int]] = {}
        """The tokens of a field of the summary: prompt, completion, total."""
        self._repeated: list[tuple[int, int]] | None = []
        """How often each repeated case passed and ran; None if one did not run as planned."""
        self._costs = CostSum()

    def add(self, result: TestResult) -> None:
        counts, rows, runs = self._counts, result.rows, result.single_runs
        counts["total_tests"] += 1
        counts["passed"] += result.passed
        counts["total_duration_ms"] += result.execution_time_ms
        self._outcomes[result.outcome.value] += 1
        for row in rows:
            if row.score is None:
                self._errored[row.metric_name] += 1
            else:
                self._scores.setdefault(row.metric_name, []).append(row.score)
        for run in runs:
            self._add_run(run, rows if run is result else run.rows)
        counts["unknown_token_usage"] += any(map(_lacks_usage, runs))
        if result.repeats is not None:
            self._add_repeats(result.repeats)
        self._costs.add(result)

    def _add_run(self, run: TestResult, rows: Sequence[MetricResult]) -> None:
        self._add_usage("token_usage", run.token_usage)
        for row in rows:
            if row.judge_calls:
                self._counts["judge_calls"] += row.judge_calls
            self._add_usage("judge_usage", row.judge_tokens)
        for kind, cost in (("judge", run.judge_cost), ("simulator", run.simulator_cost)):
            if cost is not None:
                self._counts[f"{kind}_calls"] += cost.calls
                self._add_usage(f"{kind}_usage", cost.tokens)

    def _add_usage(self, name: str, usage: TokenUsage | None) -> None:
        if usage is not None and usage.total_tokens:
            known = self._usages.setdefault(name, [0, 0, 0])
            known[0] += usage.prompt_tokens
            known[1] += usage.completion_tokens
            known[2] += usage.total_tokens

    def _add_repeats(self, repeats: Repeats) -> None:
        if not _is_whole(repeats):
            self._repeated = None
        elif self._repeated is not None:
            self._repeated.append((repeats.passed, repeats.planned))

    def summary(self, wall_time_ms: int) -> ReportSummary:
        counts, outcomes, scores = self._counts, self._outcomes, self._scores
        total, passed = counts["total_tests"], counts["passed"]
        ran = total - outcomes.get(Outcome.SKIPPED, 0)
        return ReportSummary(
            total_tests=total,
            passed=passed,
            failed=ran - passed,
            flaky=outcomes.get(Outcome.FLAKY, 0),
            skipped=outcomes.get(Outcome.SKIPPED, 0),
            pass_rate=100 * passed / ran if ran else 0,
            total_duration_ms=counts["total_duration_ms"],
            wall_time_ms=wall_time_ms,
            outcomes=dict(outcomes),
            metrics_evaluated={name: len(found) for name, found in scores.items()},
            metrics_errored=dict(self._errored),
            average_scores={name: _mean(found) for name, found in scores.items()},
            standard_errors={
                name: _standard_error(found) for name, found in scores.items() if found[1:]
            },
            token_usage=self._usage("token_usage"),
            unknown_token_usage=counts["unknown_token_usage"],
            pass_at_k=_mean_estimates(self._repeated or (), pass_any),
            pass_all_k=_mean_estimates(self._repeated or (), pass_all),
            judge_calls=counts["judge_calls"],
            judge_usage=self._usage("judge_usage"),
            cost=self._costs.total(),
            simulator_calls=counts["simulator_calls"],
            simulator_usage=self._usage("simulator_usage"),
        )

    def _usage(self, name: str) -> TokenUsage:
        prompt, completion, total = self._usages.get(name, (0, 0, 0))
        return TokenUsage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=total)


def _lacks_usage(run: TestResult) -> bool:
    """Return whether the token usage of a run of the agent is unknown."""
    return run.token_usage is None and run.agent_time_ms is not None


def unknown_usage_note(summary: ReportSummary) -> str:
    """Return a note that the usage of some tests is unknown; empty if all is known."""
    count = summary.unknown_token_usage
    return f", unknown for {count} of {summary.total_tests} tests" if count else ""


def _mean(scores: Sequence[float]) -> float:
    return fsum(scores) / len(scores)


def _standard_error(scores: Sequence[float]) -> float:
    """Return that of the mean; `statistics` would compute with fractions, which is slow."""
    mean = _mean(scores)
    variance = fsum((score - mean) ** 2 for score in scores) / (len(scores) - 1)
    return sqrt(variance / len(scores))


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
