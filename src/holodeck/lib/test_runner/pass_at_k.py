"""The probability that one of k runs of a case passes, and that all of them do.

pass@k by the unbiased estimator of Chen et al., "Evaluating Large Language Models Trained on Code"
(2021); pass^k as in Yao et al., "tau-bench" (2024).
"""

from collections.abc import Callable, Iterable, Sequence
from math import comb
from statistics import fmean

from holodeck.models.test_result import Outcome, Repeats, TestResult

Estimator = Callable[[int, int, int], float]
_DECIDED = {Outcome.PASSED, Outcome.FLAKY, Outcome.FAILED, Outcome.UNCHECKED}


def one_of_k(passed: int, ran: int, k: int) -> float:
    """Return the probability that at least one of k runs, drawn from all, passed."""
    return 1 - comb(ran - passed, k) / comb(ran, k)


def all_of_k(passed: int, ran: int, k: int) -> float:
    """Return the probability that all of k runs, drawn from all, passed."""
    return comb(passed, k) / comb(ran, k)


def estimates(results: Iterable[TestResult], estimator: Estimator) -> dict[int, float]:
    """Return the mean over the repeated cases for each k, up to the fewest repetitions of a case.

    Empty if a repeated case has repetitions that were not run or are undecided: leaving them out
    would bias the estimate.
    """
    repeats = [one.repeats for one in results if one.repeats is not None]
    if not repeats or not all(map(_is_whole, repeats)):
        return {}
    fewest = min(one.planned for one in repeats)
    return {k: _mean(repeats, k, estimator) for k in range(1, fewest + 1)}


def _is_whole(repeats: Repeats) -> bool:
    all_ran = len(repeats.runs) == repeats.planned
    return all_ran and all(one.outcome in _DECIDED for one in repeats.runs)


def _mean(repeats: Sequence[Repeats], k: int, estimator: Estimator) -> float:
    return fmean(estimator(one.passed, one.planned, k) for one in repeats)
