"""Statistics of how well a judge agrees with people, with their uncertainty."""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise

Z95 = 1.959964
"""The number of standard errors of a 95 % interval."""


@dataclass(frozen=True)
class Proportion:
    """A proportion with its 95 % confidence interval."""

    count: int
    of: int

    @property
    def value(self) -> float | None:
        """The proportion; None if nothing was counted."""
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The Wilson interval, which also holds for small numbers and for none or all."""
        if not self.of:
            return None
        rate, spread = self.count / self.of, Z95**2 / self.of
        middle = rate + spread / 2
        half = Z95 * math.sqrt(rate * (1 - rate) / self.of + spread / 4 / self.of)
        low, high = (middle - half) / (1 + spread), (middle + half) / (1 + spread)
        return round(max(0.0, low), 6), round(min(1.0, high), 6)


@dataclass(frozen=True)
class Agreement:
    """The verdicts of a judge compared with those of people."""

    true_positives: int
    false_positives: int
    true_negatives: int
    false_negatives: int

    @classmethod
    def of(cls, verdicts: Sequence[tuple[bool, bool]]) -> "Agreement":
        """Count pairs of (verdict of people, verdict of the judge)."""
        return cls(*(verdicts.count(cell) for cell in _CELLS))

    @property
    def total(self) -> int:
        return sum(astuple(self))

    @property
    def accuracy(self) -> Proportion:
        return Proportion(self.true_positives + self.true_negatives, self.total)

    @property
    def true_positive_rate(self) -> Proportion:
        """The share of good responses that the judge passes."""
        return Proportion(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def true_negative_rate(self) -> Proportion:
        """The share of bad responses that the judge fails."""
        return Proportion(self.true_negatives, self.true_negatives + self.false_positives)

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa: agreement beyond chance, 1 at most; None if chance alone would agree."""
        expected = self._expected_accuracy()
        if not self.total or expected == 1:
            return None
        return (self.accuracy.count / self.total - expected) / (1 - expected)

    @property
    def kappa_error(self) -> float | None:
        """The standard error of kappa."""
        if self.kappa is None:
            return None
        rate, expected = self.accuracy.count / self.total, self._expected_accuracy()
        return math.sqrt(rate * (1 - rate) / self.total) / (1 - expected)

    def _expected_accuracy(self) -> float:
        if not self.total:
            return 1.0
        good = (self.true_positives + self.false_negatives) / self.total
        passed = (self.true_positives + self.false_positives) / self.total
        return good * passed + (1 - good) * (1 - passed)


SIGNIFICANT = 0.05
"""The p-value from which on luck is called an unlikely explanation."""
MIN_DIFFERING = 6
"""Fewer pairs that differ than these cannot reach it, however unbalanced they are."""


def mcnemar_p_value(only_first: int, only_second: int) -> float:
    """Return the two-sided p-value of McNemar's exact test (1947).

    Under the null hypothesis, each of two judges is as likely as the other to be the one that is
    right where they differ, so the smaller of both counts is binomial with a half.
    """
    discordant, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(math.comb(discordant, count) for count in range(fewer + 1))
    return float(min(1.0, 2 * tail / 2**discordant))


def krippendorff_alpha(units: Sequence[Sequence[bool]]) -> float | None:
    """Return Krippendorff's alpha for nominal data, of the labels that each response has.

    A response with fewer than two labels says nothing. None if all labels are the same, or no
    response has two: chance would agree as well.
    """
    paired = [unit for unit in units if len(unit) > 1]
    good = sum(unit.count(True) for unit in paired)
    total = sum(len(unit) for unit in paired)
    expected = good * (total - good)
    if not expected:
        return None
    observed = sum(unit.count(True) * unit.count(False) / (len(unit) - 1) for unit in paired)
    return 1 - (total - 1) * observed / expected


_CELLS = ((True, True), (False, True), (False, False), (True, False))


def area_under_curve(scores: Sequence[tuple[bool, float]]) -> float | None:
    """Return how often good responses score higher than bad ones; None without both kinds."""
    good = [score for is_good, score in scores if is_good]
    bad = [score for is_good, score in scores if not is_good]
    if not good or not bad:
        return None
    wins = sum((high > low) + (high == low) / 2 for high in good for low in bad)
    return wins / (len(good) * len(bad))


def best_threshold(scores: Sequence[tuple[bool, float]]) -> float | None:
    """Return the threshold that agrees with people most often; None without both kinds.

    If several do, it is that in the widest gap between two scores.
    """
    if len({is_good for is_good, _ in scores}) < 2:
        return None
    values = sorted({0.0, 1.0, *(score for _, score in scores)})
    gaps = [((low + high) / 2, high - low) for low, high in pairwise(values)]
    agreeing = {
        middle: sum((score >= middle) == is_good for is_good, score in scores) for middle, _ in gaps
    }
    return max(gaps, key=lambda gap: (agreeing[gap[0]], gap[1]))[0]


_FOLDS = 10


def held_out_accuracy(scores: Sequence[tuple[bool, float]]) -> Proportion | None:
    """Return how often `best_threshold` is right on scores that it was not chosen by.

    Ten-fold cross-validation with the same share of both kinds in each fold. The accuracy of the
    best threshold on its own scores is too high. None with fewer than two scores of a kind.
    """
    kinds = [[score for score in scores if score[0] is is_good] for is_good in (True, False)]
    if min(map(len, kinds)) < 2:
        return None
    right = 0
    for fold in range(_FOLDS):
        tested = [score for kind in kinds for score in kind[fold::_FOLDS]]
        others = [score for kind in kinds for at, score in enumerate(kind) if at % _FOLDS != fold]
        threshold = best_threshold(others) if tested else None
        if threshold is not None:
            right += sum((score >= threshold) == is_good for is_good, score in tested)
    return Proportion(right, len(scores))
