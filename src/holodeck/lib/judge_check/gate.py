"""Whether a judge agrees with people well enough to decide, as far as its labels can tell.

Two claims must be shown, each with an error of 5 % at the most: Cohen's kappa is high enough, and
few bad responses pass. Both tests are exact for the numbers of good and bad labels at hand:

- false passes: the one-sided bound of Clopper and Pearson (1934);
- kappa: an unconditional test in the manner of Barnard (1947). The p-value is the largest
  probability of a kappa as high as observed, over all judges whose true kappa is the limit.

Standard errors and Wald intervals are too optimistic with the few labels that people write.

People look again when they have more labels, and each look is another chance to be wrong. So look k
may err with 5 % / (k (k + 1)) only, which adds up to 5 % over any number of looks: a spending
function in the sense of Lan and DeMets (1983), with Boole's inequality in place of the joint
distribution of the looks, which the exact tests do not have.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from holodeck.lib.judging.agreement import Agreement, Proportion
from holodeck.models.metrics.judge_trust import Limits

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ALPHA = 0.05
"""The largest accepted probability that a judge may gate that must not, over all looks."""
MIN_OF_EACH = 10
"""How many different good and how many bad labels a decision needs at the least."""
_GRID = 32
"""Judges with a kappa of the limit that are tried."""
_HALVINGS = 20
_MAX_LABELS = 2000
"""More labels than this are not suggested."""

Verdict = Literal["may gate", "may not gate", "not known yet"]
_WORST_FIRST: tuple[Verdict, ...] = ("may not gate", "not known yet", "may gate")


DEFAULT_LIMITS = Limits()


def alpha_of(look: int) -> float:
    """Return the accepted probability of an error in the look of that number, from 1."""
    return ALPHA / (look * (look + 1))


@dataclass(frozen=True)
class GateDecision:
    """Whether a judge may gate, and what the labels say about it."""

    verdict: Verdict
    limits: Limits
    good: int
    """Labels "pass" that were judged."""
    bad: int
    kappa_bounds: tuple[float, float] | None
    """One-sided bounds of kappa, each for itself, that hold with 95 % over all looks; None without
    labels of both kinds."""
    false_pass_bounds: tuple[float, float] | None
    """The same of the share of bad responses that pass."""
    more_labels: int | None = None
    """About how many more labels would decide, at the rates seen so far; None if unknown."""
    injected_bounds: tuple[float, float] | None = None
    """The same of the share of bad responses that an injection gets through; None if none was
    tried."""
    look: int = 1
    """Which look at labels of the metric it is."""
    is_repeated: bool = False
    """Whether it is the decision of an earlier, equal look, which was worse than this."""


def decide_gate(counts: Agreement, limits: Limits = DEFAULT_LIMITS, look: int = 1) -> GateDecision:
    """Return whether a judge with these counts may gate.

    Args:
        counts: The agreement on different labels, with inconclusive verdicts counted as wrong.
        limits: What the judge must reach.
        look: Which look at labels of the metric it is; each later one may err less.
    """
    good, _, bad, _ = _cells(counts)
    if not good or not bad:
        return GateDecision("not known yet", limits, good, bad, None, None, look=look)
    passed, alpha = counts.false_positives, alpha_of(look)
    verdict = gate_verdict(counts, limits, alpha)
    next_alpha = alpha_of(look + 1)
    return GateDecision(
        verdict,
        limits,
        good,
        bad,
        (_kappa_bound(counts, alpha, is_lower=True), _kappa_bound(counts, alpha, is_lower=False)),
        _rate_bounds(passed, bad, alpha),
        labels_to_decide(counts, limits, next_alpha) if verdict == "not known yet" else None,
        look=look,
    )


def gate_verdict(
    counts: Agreement, limits: Limits = DEFAULT_LIMITS, alpha: float = alpha_of(1)
) -> Verdict:
    """Return only the verdict of `decide_gate`, with an accepted probability of an error."""
    cells, passed = _cells(counts), counts.false_positives
    good, _, bad, _ = cells
    if min(good, bad) < MIN_OF_EACH:
        return "not known yet"
    of_false_passes = _false_pass_verdict(passed, bad, limits, alpha)
    if of_false_passes == "may not gate":
        return "may not gate"
    if _kappa_p_value(cells, limits.min_kappa, is_lower=False) <= alpha:
        return "may not gate"
    if of_false_passes == "not known yet":
        return "not known yet"
    is_kappa_high = _kappa_p_value(cells, limits.min_kappa, is_lower=True) <= alpha
    return "may gate" if is_kappa_high else "not known yet"


def with_injections(decision: GateDecision, fooled: Proportion) -> GateDecision:
    """Return the decision about a judge that injections let pass so many of the bad responses.

    They may not be more than the limit of false passes.
    """
    if not fooled.of:
        return decision
    limits, count, of, alpha = decision.limits, fooled.count, fooled.of, alpha_of(decision.look)
    worst = worst_verdict(decision.verdict, _false_pass_verdict(count, of, limits, alpha))
    bounds = _rate_bounds(count, of, alpha)
    more = decision.more_labels if worst == decision.verdict else None
    return replace(decision, verdict=worst, injected_bounds=bounds, more_labels=more)


def worst_verdict(*verdicts: Verdict) -> Verdict:
    """Return the verdict that trusts the judge least."""
    return next(verdict for verdict in _WORST_FIRST if verdict in verdicts)


def _false_pass_verdict(passed: int, bad: int, limits: Limits, alpha: float) -> Verdict:
    if bad < MIN_OF_EACH:
        return "not known yet"
    if _at_least(passed, bad, limits.max_false_passes) <= alpha:
        return "may not gate"
    if _at_most(passed, bad, limits.max_false_passes) <= alpha:
        return "may gate"
    return "not known yet"


@lru_cache(maxsize=64)
def labels_needed(good: int, bad: int, limits: Limits, look: int = 1) -> tuple[int, int]:
    """Return how many good and bad labels must be added so that a perfect judge may gate."""
    more_good, more_bad = max(0, MIN_OF_EACH - good), max(0, MIN_OF_EACH - bad)
    alpha = alpha_of(look)
    while _at_most(0, bad + more_bad, limits.max_false_passes) > alpha:
        more_bad += 1
    while (
        gate_verdict(Agreement(good + more_good, 0, bad + more_bad, 0), limits, alpha) != "may gate"
    ):
        if good + more_good < bad + more_bad:
            more_good += 1
        else:
            more_bad += 1
    return more_good, more_bad


def labels_to_decide(counts: Agreement, limits: Limits, alpha: float) -> int | None:
    """Return how many more labels would decide at the same rates; None if too many."""
    total = counts.total
    low, high = 1.0, 1.0
    while gate_verdict(_scaled(counts, high), limits, alpha) == "not known yet":
        low, high = high, high * 1.5
        if total * high > _MAX_LABELS:
            return None
    while total * (high - low) > max(2, 0.02 * total * high):
        middle = (low + high) / 2
        if gate_verdict(_scaled(counts, middle), limits, alpha) == "not known yet":
            low = middle
        else:
            high = middle
    return max(1, math.ceil(total * (high - 1)))


def _scaled(counts: Agreement, factor: float) -> Agreement:
    """Return the counts of more labels, with the same rates."""
    good, hits, bad, refused = (round(count * factor) for count in _cells(counts))
    return Agreement(hits, bad - refused, refused, good - hits)


Cells = tuple[int, int, int, int]
"""Good labels, passed good ones, bad labels, failed bad ones."""


def _cells(counts: Agreement) -> Cells:
    return (
        counts.true_positives + counts.false_negatives,
        counts.true_positives,
        counts.true_negatives + counts.false_positives,
        counts.true_negatives,
    )


def _kappa(share_good: float, sensitivity: float, specificity: float) -> float:
    """Return kappa of a judge with these rates, where `share_good` of the labels are good."""
    share_bad = 1 - share_good
    passed = share_good * sensitivity + share_bad * (1 - specificity)
    expected = share_good * passed + share_bad * (1 - passed)
    observed = share_good * sensitivity + share_bad * specificity
    return (observed - expected) / (1 - expected)


def _kappa_p_value(cells: Cells, limit: float, *, is_lower: bool) -> float:
    """Return the largest probability of so extreme a kappa where the true kappa is `limit`.

    Kappa rises with both rates, so of all judges at most as good as `limit` (`is_lower`; else at
    least as good), those at the limit are the ones that come nearest.
    """
    import numpy as np

    good, hits, bad, refused = cells
    share = good / (good + bad)
    seen = _kappa(share, hits / good, refused / bad)
    at_least, more = _fewest_refusals(good, bad, seen)
    worst = 0.0
    for sensitivity, specificity in _judges_at(share, limit):
        of_good, of_bad = _pmf(good, sensitivity), _pmf(bad, specificity)
        tail = np.append(of_bad[::-1].cumsum()[::-1], 0.0)  # at least so many refusals
        so_extreme = tail[at_least] if is_lower else 1 - tail[more]
        worst = max(worst, float(of_good @ so_extreme))
    return min(1.0, worst)


@lru_cache(maxsize=64)
def _fewest_refusals(good: int, bad: int, kappa: float) -> tuple[list[int], list[int]]:
    """Return the fewest refusals per number of hits, for at least this kappa and for more."""
    share = good / (good + bad)

    def fewest(hits: int, limit: float) -> int:
        counts = range(bad + 1)
        return bisect_left(
            counts, limit, key=lambda refused: _kappa(share, hits / good, refused / bad)
        )

    return (
        [fewest(hits, kappa - 1e-12) for hits in range(good + 1)],
        [fewest(hits, kappa + 1e-12) for hits in range(good + 1)],
    )


@lru_cache(maxsize=64)
def _judges_at(share: float, limit: float) -> list[tuple[float, float]]:
    """Return judges (sensitivity, specificity) whose kappa is `limit`, evenly spread."""
    least = _solve(lambda rate: _kappa(share, rate, 1.0) >= limit)
    rates = [least + (1 - least) * step / _GRID for step in range(_GRID + 1)]

    def specificity_at(sensitivity: float) -> float:
        return _solve(lambda rate: _kappa(share, sensitivity, rate) >= limit)

    return [(rate, specificity_at(rate)) for rate in rates]


def _kappa_bound(counts: Agreement, alpha: float, *, is_lower: bool) -> float:
    """Return the one-sided bound of kappa: the first limit that the test does not reject."""
    cells = _cells(counts)
    if is_lower:
        return _solve(lambda limit: _kappa_p_value(cells, limit, is_lower=True) > alpha)
    return _solve(lambda limit: _kappa_p_value(cells, limit, is_lower=False) <= alpha)


def _rate_bounds(count: int, of: int, alpha: float) -> tuple[float, float]:
    """Return the one-sided bounds of Clopper and Pearson of a share."""
    return (
        _solve(lambda rate: _at_least(count, of, rate) > alpha),
        _solve(lambda rate: _at_most(count, of, rate) <= alpha),
    )


def _at_most(count: int, of: int, rate: float) -> float:
    """Return the probability of `count` or fewer of `of`."""
    return float(_pmf(of, rate)[: count + 1].sum())


def _at_least(count: int, of: int, rate: float) -> float:
    return float(_pmf(of, rate)[count:].sum())


def _pmf(of: int, rate: float) -> "npt.NDArray[np.float64]":
    """Return the binomial probabilities of 0 to `of`."""
    import numpy as np

    if rate <= 0 or rate >= 1:
        certain = np.zeros(of + 1)
        certain[0 if rate <= 0 else of] = 1
        return certain
    counts = np.arange(of + 1)
    logs = counts * math.log(rate) + (of - counts) * math.log1p(-rate)
    return np.exp(_log_ways(of) + logs)


@lru_cache(maxsize=64)
def _log_ways(of: int) -> "npt.NDArray[np.float64]":
    """Return the logarithms of the ways to choose 0 to `of`."""
    import numpy as np

    logs = [math.lgamma(count + 1) for count in range(of + 1)]
    return np.array([logs[of] - logs[count] - logs[of - count] for count in range(of + 1)])


def _solve(holds: Callable[[float], bool]) -> float:
    """Return the smallest number from 0 to 1 for which `holds` is true; it stays true above."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
