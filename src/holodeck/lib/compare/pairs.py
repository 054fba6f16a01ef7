"""Compare the results of two agents, case by case."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum
from statistics import fmean

from holodeck.lib.compare.trajectories import compare_trajectories, repetitions
from holodeck.lib.judging.agreement import Proportion, mcnemar_p_value
from holodeck.lib.support.text import one_line
from holodeck.models.records.comparison import (
    ComparedAgent,
    ComparisonReport,
    Difference,
    Pair,
    PairVerdict,
    Significance,
    Total,
)
from holodeck.models.results.outcome import DECIDED, Outcome
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import TestResult

_MAX_REASONS = 3
_MAX_NAME = 80
_VERDICTS = {
    (True, True): PairVerdict.BOTH,
    (True, False): PairVerdict.ONLY_FIRST,
    (False, True): PairVerdict.ONLY_SECOND,
    (False, False): PairVerdict.NEITHER,
}

Numbers = Sequence[Difference]


def build_pair(
    index: int,
    case: TestCaseModel | TestResult,
    first: TestResult | None,
    second: TestResult | None,
    names: Mapping[str, str] | None = None,
) -> Pair:
    """Return what the results of a case say; None is a result that does not exist.

    `names` are those that the second agent has for tools, arguments and agents of the first.
    """
    name, test_id, said = (
        (case.written_name, case.test_id, case.test_input)
        if isinstance(case, TestResult)
        else (case.name, case.id, case.user_input)
    )
    if isinstance(case, TestResult) and case.agent_name is not None:
        name = f"{case.agent_name} › {name or one_line(said, _MAX_NAME)}"
    return Pair(
        index=index,
        name=name,
        id=test_id,
        suite=case.suite,
        input=said,
        verdict=_verdict(first, second),
        first=None if first is None else first.outcome,
        second=None if second is None else second.outcome,
        first_reasons=[] if first is None else first.reasons()[:_MAX_REASONS],
        second_reasons=[] if second is None else second.reasons()[:_MAX_REASONS],
        trajectories=compare_trajectories(first, second, names),
        scores=_scores(first, second),
        cost=_difference(_cost, first, second),
        tokens=_difference(mean_tokens, first, second),
        latency_ms=_difference(mean_latency_ms, first, second),
    )


def build_comparison(
    first: ComparedAgent, second: ComparedAgent, pairs: Sequence[Pair], currency: str | None
) -> ComparisonReport:
    """Return the comparison with its totals, over the pairs that ran on both agents."""
    ran = [pair for pair in pairs if _ran(pair.first) and _ran(pair.second)]
    metrics = dict.fromkeys(name for pair in ran for name in pair.scores)
    scores = {
        name: _score_total([pair.scores[name] for pair in ran if name in pair.scores])
        for name in metrics
    }
    return ComparisonReport(
        first=first,
        second=second,
        pairs=list(pairs),
        significance=_significance(pairs),
        currency=currency,
        scores={name: score for name, score in scores.items() if score is not None},
        cost=_total([pair.cost for pair in ran], fsum),
        tokens=_total([pair.tokens for pair in ran], fsum),
        latency_ms=_total([pair.latency_ms for pair in ran], fmean),
    )


def _ran(outcome: Outcome | None) -> bool:
    return outcome not in {None, Outcome.SKIPPED}


def _verdict(first: TestResult | None, second: TestResult | None) -> PairVerdict:
    results = (first, second)
    if all(result is not None and result.skipped_by == "skip" for result in results):
        return PairVerdict.SKIPPED
    if not any(result is not None and _ran(result.outcome) for result in results):
        return PairVerdict.NOT_RUN
    if first is None or second is None:
        return PairVerdict.UNDECIDED
    if not {first.outcome, second.outcome} <= DECIDED:
        return PairVerdict.UNDECIDED
    return _VERDICTS[first.passed, second.passed]


def _significance(pairs: Iterable[Pair]) -> Significance:
    verdicts = [pair.verdict for pair in pairs]
    only_first = verdicts.count(PairVerdict.ONLY_FIRST)
    only_second = verdicts.count(PairVerdict.ONLY_SECOND)
    decided = sum(verdict.is_decided for verdict in verdicts)
    return Significance(
        only_first=only_first,
        only_second=only_second,
        p_value=mcnemar_p_value(only_first, only_second) if only_first + only_second else None,
        regressions=Proportion(only_first, decided).interval,
    )


def _difference(
    number: Callable[[TestResult], float | None],
    first: TestResult | None,
    second: TestResult | None,
) -> Difference:
    return Difference(
        first=None if first is None else number(first),
        second=None if second is None else number(second),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None if a value is unknown."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _cost(result: TestResult) -> float | None:
    if result.cost is None or result.cost.agent is None or result.outcome is Outcome.SKIPPED:
        return None
    return result.cost.agent / max(1, len(repetitions(result)))


def mean_tokens(result: TestResult) -> float | None:
    """Return the agent's tokens of a run of the case; None if unknown."""
    usages = [repetition.token_usage for repetition in repetitions(result)]
    return _mean([None if usage is None else usage.total_tokens for usage in usages])


def mean_latency_ms(result: TestResult) -> float | None:
    """Return how long the agent took in a run of the case; None if unknown."""
    return _mean([repetition.agent_time_ms for repetition in repetitions(result)])


def _scores(first: TestResult | None, second: TestResult | None) -> dict[str, Difference]:
    ours, theirs = ({} if result is None else mean_scores(result) for result in (first, second))
    return {
        name: Difference(first=ours.get(name), second=theirs.get(name)) for name in ours | theirs
    }


def mean_scores(result: TestResult) -> dict[str, float | None]:
    rows = result.rows
    names = dict.fromkeys(row.metric_name for row in rows)
    return {name: _mean([row.score for row in rows if row.metric_name == name]) for name in names}


def _score_total(numbers: Numbers) -> Total | None:
    """Return the mean scores, and an interval of their difference."""
    total = _total(numbers, fmean)
    if total is None:
        return None
    deltas = [number.delta for number in numbers if number.delta is not None]
    return total.model_copy(update={"interval": bootstrap_interval(deltas)})


def bootstrap_interval(
    differences: Sequence[float], resamples: int = 2_000
) -> tuple[float, float] | None:
    """Return the 95 % percentile interval of the mean of paired differences (Efron, 1979).

    The same differences always have the same interval. None for fewer than two.
    """
    count = len(differences)
    if count < 2:
        return None
    draw = random.Random(count)  # noqa: S311 - a simulation
    means = sorted(fmean(draw.choices(differences, k=count)) for _ in range(resamples))
    edge = round(resamples * 0.025)
    return means[edge], means[-edge - 1]


def _total(numbers: Numbers, combine: Callable[[Iterable[float]], float]) -> Total | None:
    """Combine the numbers that are known of both agents; None if there are none."""
    known = [
        (number.first, number.second)
        for number in numbers
        if number.first is not None and number.second is not None
    ]
    if not known:
        return None
    return Total(
        first=combine([value for value, _ in known]),
        second=combine([value for _, value in known]),
        pairs=len(known),
        unknown=len(numbers) - len(known),
    )
