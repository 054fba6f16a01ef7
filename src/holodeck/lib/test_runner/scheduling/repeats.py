"""Repetitions of a case: run as many as the verdict needs, and combine them into a result."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import and_
from statistics import fmean, stdev

from holodeck.lib.judging.agreement import Proportion
from holodeck.lib.test_runner.case_run import FinishedRun
from holodeck.lib.test_runner.case_state import result_of_case
from holodeck.models.results.evidence import evidence
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import MetricResult, Outcome, Repeats, Spread, TestResult
from holodeck.models.token_usage import sum_of

RunIfWanted = Callable[[int, Callable[[], bool]], Awaitable[FinishedRun | None]]
"""Runs the repetition of that number, from 1, when a slot is free, unless the given function says
that it is not needed."""
_UNDECIDED = (Outcome.AGENT_ERROR, Outcome.METRIC_ERROR)


@dataclass(frozen=True)
class PassBar:
    """How often a case is run, and how often it must pass."""

    planned: int
    needed: int

    @property
    def min_runs(self) -> int:
        """How many runs can be enough for a verdict: all of them pass, or none does."""
        return min(self.needed, self.planned - self.needed + 1)

    def is_decided(self, passed: int, ran: int) -> bool:
        """Whether further runs cannot change the verdict."""
        return passed >= self.needed or passed + self.planned - ran < self.needed

    def outcome(self, runs: Sequence[TestResult]) -> Outcome:
        """Return how the case ended.

        It failed only if it would have failed even if all undecided runs had passed. A run that
        did not take place is undecided, too.
        """
        ends = [run.outcome for run in runs]
        passed = sum(outcome.is_pass for outcome in ends)
        if passed >= self.needed:
            whole = all(outcome is Outcome.PASSED for outcome in ends)
            return Outcome.PASSED if whole else Outcome.FLAKY
        broken = [outcome for outcome in _UNDECIDED if outcome in ends]
        undecided = sum(outcome in _UNDECIDED for outcome in ends) + self.planned - len(ends)
        if passed + undecided >= self.needed:
            return broken[0] if broken else Outcome.AGENT_ERROR
        is_unchecked = Outcome.UNCHECKED in ends and Outcome.FAILED not in ends
        return Outcome.UNCHECKED if is_unchecked else Outcome.FAILED


def pass_bar(case: TestCaseModel) -> PassBar | None:
    """Return the bar of a repeated case, by default that all must pass; None for other cases."""
    return None if case.repeat is None else _bar(case, case.repeat)


def _bar(case: TestCaseModel, planned: int) -> PassBar:
    if case.min_pass_rate is not None:
        wanted = round(case.min_pass_rate * planned, 9)  # 0.7 * 10 is a little more than 7
        return PassBar(planned, max(1, math.ceil(wanted)))
    return PassBar(planned, planned if case.min_pass is None else case.min_pass)


async def run_repeated(case: TestCaseModel, times: int, run: RunIfWanted) -> FinishedRun:
    """Run a case several times, as far as the verdict needs it; return the combined result."""
    bar, stops_early = _bar(case, times), case.stop_early is not False
    numbers, finished = iter(range(1, bar.planned + 1)), dict[int, FinishedRun]()

    def is_permanent() -> bool:
        return any(repetition.is_permanent for repetition in finished.values())

    def is_over() -> bool:
        passed = sum(repetition.result.passed for repetition in finished.values())
        return is_permanent() or (stops_early and bar.is_decided(passed, len(finished)))

    async def run_until_passed() -> None:
        for number in numbers:
            repetition = await run(number, lambda: not is_over())
            if repetition is not None:
                finished[number] = repetition
            if is_over() or (stops_early and repetition is not None and repetition.result.passed):
                return

    async with asyncio.TaskGroup() as group:
        # As many concurrently as must pass: with fewer passes than these there is no verdict yet.
        for _ in range(bar.needed if stops_early else bar.planned):
            group.create_task(run_until_passed())
    results = [repetition.result for _, repetition in sorted(finished.items())]
    refusals = [repetition.refusal for repetition in finished.values()]
    refusal = refusals[0] if refusals and all(refusals) else None
    combined = combine_repetitions(case, bar, results)
    return FinishedRun(combined, is_permanent=is_permanent(), refusal=refusal)


def combine_repetitions(
    case: TestCaseModel, bar: PassBar, runs: Sequence[TestResult]
) -> TestResult:
    """Return the result of a case that was run several times."""
    outcome = bar.outcome(runs)
    passed = sum(run.passed for run in runs)
    broken = [error for run in runs if run.outcome in _UNDECIDED for error in run.errors]
    every = [single_run for run in runs for single_run in run.single_runs]
    rows_by_name: dict[str, list[MetricResult]] = {}
    for row in chain.from_iterable(run.rows for run in runs):
        rows_by_name.setdefault(row.metric_name, []).append(row)
    # The runs may come from a record, which masks secrets.
    names = {"test_name": runs[0].test_name, "test_input": runs[0].test_input} if runs else {}
    result = result_of_case(
        case,
        history=runs[0].history if runs else [],
        passed=outcome.is_pass,
        outcome=outcome,
        execution_time_ms=sum(run.execution_time_ms for run in runs),
        errors=list(dict.fromkeys(broken)) if outcome is Outcome.AGENT_ERROR else [],
        token_usage=sum_of(
            run.token_usage
            for run in every
            if run.token_usage is not None or run.agent_response is not None
        ),
        evidence=reduce(and_, [run.evidence for run in every]) if every else evidence(),
        repeats=Repeats(
            planned=bar.planned,
            needed=bar.needed,
            passed=passed,
            interval=Proportion(passed, len(runs)).interval,
            spread=[_spread_of(name, rows) for name, rows in rows_by_name.items()],
            runs=list(runs),
        ),
    )
    return result.model_copy(update=names)


def _spread_of(name: str, rows: Sequence[MetricResult]) -> Spread:
    scores = [row.score for row in rows if row.score is not None]
    if not scores:
        return Spread(metric_name=name)
    return Spread(
        metric_name=name,
        scored=len(scores),
        mean=fmean(scores),
        least=min(scores),
        most=max(scores),
        deviation=stdev(scores) if len(scores) > 1 else None,
    )
