"""How well a judge agrees with people: the usual figures, each with how sure it is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Z95 = 1.959964
"""So many standard errors hold 95 %."""


@dataclass(frozen=True)
class Proportion:
    """So many of so many, with the interval that holds the true share in 95 of 100 cases."""

    count: int
    of: int

    @property
    def value(self) -> float | None:
        """None where there was nothing to count."""
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """By Wilson, which holds for few and for 0 or all of them, too."""
        if not self.of:
            return None
        rate, spread = self.count / self.of, Z95**2 / self.of
        middle = rate + spread / 2
        half = Z95 * math.sqrt(rate * (1 - rate) / self.of + spread / 4 / self.of)
        low, high = (middle - half) / (1 + spread), (middle + half) / (1 + spread)
        return round(max(0.0, low), 6), round(min(1.0, high), 6)


@dataclass(frozen=True)
class Agreement:
    """Verdicts of a judge beside those of people."""

    true_positives: int
    false_positives: int
    true_negatives: int
    false_negatives: int

    @classmethod
    def of(cls, verdicts: Sequence[tuple[bool, bool]]) -> "Agreement":
        """Of (what people say, what the judge says)."""
        return cls(*(verdicts.count(one) for one in _CELLS))

    @property
    def total(self) -> int:
        return sum(
            (self.true_positives, self.false_positives, self.true_negatives, self.false_negatives)
        )

    @property
    def accuracy(self) -> Proportion:
        return Proportion(self.true_positives + self.true_negatives, self.total)

    @property
    def true_positive_rate(self) -> Proportion:
        """Of the good answers, how many the judge passes."""
        return Proportion(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def true_negative_rate(self) -> Proportion:
        """Of the bad answers, how many the judge fails."""
        return Proportion(self.true_negatives, self.true_negatives + self.false_positives)

    @property
    def kappa(self) -> float | None:
        """Cohen's: agreement beyond chance, 1 for all; None where chance would agree fully."""
        expected = self._by_chance()
        if not self.total or expected == 1:
            return None
        return (self.accuracy.count / self.total - expected) / (1 - expected)

    @property
    def kappa_error(self) -> float | None:
        """Its standard error."""
        if self.kappa is None:
            return None
        rate, expected = self.accuracy.count / self.total, self._by_chance()
        return math.sqrt(rate * (1 - rate) / self.total) / (1 - expected)

    def _by_chance(self) -> float:
        if not self.total:
            return 1.0
        good = (self.true_positives + self.false_negatives) / self.total
        passed = (self.true_positives + self.false_positives) / self.total
        return good * passed + (1 - good) * (1 - passed)


_CELLS = ((True, True), (False, True), (False, False), (True, False))


def area_under_curve(scores: Sequence[tuple[bool, float]]) -> float | None:
    """How often a good answer scores higher than a bad one; None without both kinds."""
    good = [score for is_good, score in scores if is_good]
    bad = [score for is_good, score in scores if not is_good]
    if not good or not bad:
        return None
    wins = sum((high > low) + (high == low) / 2 for high in good for low in bad)
    return wins / (len(good) * len(bad))


def best_threshold(scores: Sequence[tuple[bool, float]]) -> float | None:
    """The threshold that would agree most often with people; None without both kinds.

    Of several, the one in the widest gap between two scores.
    """
    if len({is_good for is_good, _ in scores}) < 2:
        return None
    values = sorted({0.0, 1.0, *(score for _, score in scores)})
    gaps = [((low + high) / 2, high - low) for low, high in pairwise(values)]
    agreeing = {
        middle: sum((score >= middle) == is_good for is_good, score in scores) for middle, _ in gaps
    }
    return max(gaps, key=lambda gap: (agreeing[gap[0]], gap[1]))[0]
