"""Where the rate of passing changed in a series of results, by an exact test.

The test is that of K. J. Worsley, "The power of likelihood ratio and cumulative sum tests for a
change in a binomial probability", Biometrika 70 (1983). Without a change, every order of the same
results is as likely as every other. The p-value is the share of the orders that can be split at
least as well as the one that was seen; it is counted, not estimated, so it holds for any number of
runs. The level of a whole page is kept as Benjamini and Hochberg do (1995).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import comb, log
from typing import TypeVar

LEVEL = 0.05
"""The expected share of false change points among those that a page shows."""
_SAME = 1e-9
"""Gains that differ by less are equal."""
K = TypeVar("K")


@dataclass(frozen=True)
class ChangePoint:
    """The best split of a series in two."""

    at: int
    """The place of the first result after the change."""
    p_value: float


def find_change_point(passes: Sequence[bool]) -> ChangePoint | None:
    """Return the best split of a series; None if all its results are the same."""
    count, passed = len(passes), sum(passes)
    if passed in {0, count}:
        return None
    sums = [*accumulate(passes)]
    gains = [_gain(at, sums[at - 1], count, passed) for at in range(1, count)]
    largest = max(gains)
    return ChangePoint(1 + gains.index(largest), _p_value(count, passed, round(largest, 9)))


def significant(found: Mapping[K, ChangePoint | None]) -> dict[K, ChangePoint]:
    """Return the change points of several series that chance alone does not explain.

    Series whose results are all the same cannot show a change, and do not count.
    """
    tested = sorted(
        ((key, point) for key, point in found.items() if point is not None),
        key=lambda pair: pair[1].p_value,
    )
    kept = 0
    for rank, (_, point) in enumerate(tested, 1):
        if point.p_value <= LEVEL * rank / len(tested):
            kept = rank
    return dict(tested[:kept])


@lru_cache(maxsize=10_000)
def _p_value(count: int, passed: int, gain: float) -> float:
    """Return the share of the orders of the results with a split of at least this gain.

    The orders with smaller gains only are counted from left to right, by how many passed so far.
    """
    below = {0: 1}
    for at in range(1, count):
        possible = range(max(0, passed - (count - at)), min(at, passed) + 1)
        below = {
            so_far: below.get(so_far, 0) + below.get(so_far - 1, 0)
            for so_far in possible
            if _gain(at, so_far, count, passed) < gain - _SAME
        }
    orders = comb(count, passed)
    return (orders - below.get(passed, 0) - below.get(passed - 1, 0)) / orders


@lru_cache(maxsize=100_000)
def _gain(at: int, passed_before: int, count: int, passed: int) -> float:
    """Return how much likelier the results are with a rate before and another from `at` on."""
    return (
        _likelihood(passed_before, at)
        + _likelihood(passed - passed_before, count - at)
        - _likelihood(passed, count)
    )


def _likelihood(passed: int, count: int) -> float:
    """Return the logarithm of the likelihood of the results at the rate that they show."""
    return sum(part * log(part / count) for part in (passed, count - passed) if part)
