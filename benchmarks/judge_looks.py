"""How often a judge that must not gate gets through if people look again, and one that may.

    python benchmarks/judge_looks.py [--runs 1000] [--seed 1]

A run has ten looks, at 80, 160, ... 800 labels, half of them good. A judge gives each response a
score; it passes from a threshold on. A judge may gate if its kappa is at least 0.6 and at most 10 %
of the bad responses pass. The first yes ends a run; it is wrong if the judge does not deserve it at
the threshold of that look. People

grow    look at all labels so far
hint    add as many labels after the first look at 80 as it says would decide, and so on
tune    set the threshold with the best kappa on all labels so far, after each look

and the looks are those of

5 % each    every look may err with 5 %, and all labels count
counted     `holodeck judge check`: looks share the 5 %, and labels count for the settings with
            which they were shown first
"""

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, islice
from math import comb
from statistics import NormalDist

from holodeck.lib.judge_check.check_result import JudgeCheckResult, Judgement, LookKeeper
from holodeck.lib.judge_check.gate import (
    ALPHA,
    DEFAULT_LIMITS,
    alpha_of,
    gate_verdict,
    labels_to_decide,
)
from holodeck.lib.judge_check.labels import Label
from holodeck.lib.judging.agreement import Agreement
from holodeck.models.metrics.judge_trust import LookLog
from holodeck.models.token_usage import UsageMeter

LOOKS, STEP, MOST = 10, 80, 800
NEAR = 1e-6
"""A judge so near to a limit counts as one that must not gate."""
UNDESERVING = (
    ("kappa 0.4 (0.70, 0.70)", 0.70, 0.70),
    ("kappa 0.6 at the limit, 0.1 % false passes (0.601, 0.999)", 0.601, 0.999),
    ("10 % false passes at the limit, kappa 0.88 (0.98, 0.90)", 0.98, 0.90),
)
TUNED = (
    ("11 % false passes at its best threshold (0.89, 0.89)", 0.89, 0.89),
    ("at both limits, at other thresholds worse (0.70, 0.90)", 0.70, 0.90),
)
DESERVING = (
    ("kappa 0.8 (0.82, 0.98)", 0.82, 0.98),
    ("kappa 0.8 (0.85, 0.95)", 0.85, 0.95),
    ("kappa 0.94 (0.96, 0.98)", 0.96, 0.98),
)


class NumberedLabel(Label):
    """A label whose question is short, so that thousands of looks take seconds."""

    @property
    def question(self) -> str:
        return self.input


LABELS = tuple(
    NumberedLabel(input=f"{n}", response="x", label="fail" if n % 2 else "pass")
    for n in range(MOST)
)


@dataclass(frozen=True)
class SimulatedJudge:
    """Gives each label a score, normally distributed around 0 for the bad ones."""

    sensitivity: float
    specificity: float

    @property
    def threshold(self) -> float:
        """The threshold with the rates."""
        return NormalDist().inv_cdf(self.specificity)

    def scores(self, draw: random.Random) -> list[float]:
        return [draw.gauss(self._distance if label.is_good else 0.0) for label in LABELS]

    def deserves(self, threshold: float) -> bool:
        """Whether it may gate with that threshold, which nobody knows."""
        specificity = NormalDist().cdf(threshold)
        kappa = specificity - NormalDist().cdf(threshold - self._distance)
        is_good_enough = kappa > DEFAULT_LIMITS.min_kappa + NEAR
        return is_good_enough and 1 - specificity < DEFAULT_LIMITS.max_false_passes - NEAR

    @property
    def _distance(self) -> float:
        return self.threshold + NormalDist().inv_cdf(self.sensitivity)


@dataclass
class CountedLooks:
    """The looks of `holodeck judge check`."""

    log: LookLog = field(default_factory=lambda: LookLog(metric="m", judge="j"))

    def gates(self, scores: list[float], size: int, threshold: float) -> bool:
        settings = f"{threshold:.6f}"
        keeper = LookKeeper(self.log, settings, settings, lambda _: settings)
        planned = keeper.plan(LABELS[:size])
        found = planned.result(checked(scores, size, threshold))
        self.log = keeper.add(planned, found, DEFAULT_LIMITS)
        return may_gate(found.counted_agreement, alpha_of(found.look))


class SeparateLooks:
    """Looks that do not know of each other."""

    def gates(self, scores: list[float], size: int, threshold: float) -> bool:
        return may_gate(checked(scores, size, threshold).strict_agreement, ALPHA)


def checked(scores: list[float], size: int, threshold: float) -> JudgeCheckResult:
    judged = [
        Judgement(label, score, score >= threshold)
        for label, score in zip(LABELS[:size], scores, strict=False)
    ]
    return JudgeCheckResult("j", threshold, judged, [], UsageMeter())


@cache
def may_gate(counts: Agreement, alpha: float) -> bool:
    """Return the verdict of the gate; the first two rules only save its slow test of kappa."""
    bad, rate = counts.false_positives + counts.true_negatives, DEFAULT_LIMITS.max_false_passes
    ways = (comb(bad, k) * rate**k * (1 - rate) ** (bad - k) for k in range(bad))
    if sum(islice(ways, counts.false_positives + 1)) > alpha:
        return False
    kappa, error = counts.kappa or 0.0, counts.kappa_error or 0.0
    if kappa - error < DEFAULT_LIMITS.min_kappa:  # an exact bound is never that narrow
        return False
    return gate_verdict(counts, DEFAULT_LIMITS, alpha) == "may gate"


@cache
def labels_that_would_decide(counts: Agreement, look: int) -> int | None:
    return labels_to_decide(counts, DEFAULT_LIMITS, alpha_of(look + 1))


def best_threshold(scores: list[float], size: int) -> float:
    """Return the threshold with the best kappa on so many labels."""
    ordered = sorted(
        (score, label.is_good) for score, label in zip(scores[:size], LABELS[:size], strict=True)
    )
    bad_below = accumulate(not is_good for _, is_good in ordered)
    right = [
        (below - (at - below), score)  # kappa rises with it, as half of the labels are good
        for at, (below, (score, _)) in enumerate(zip(bad_below, ordered, strict=True), 1)
    ]
    return max(right)[1] + 1e-6


def looks_that_grow(judge: SimulatedJudge, _: list[float]) -> Iterator[tuple[int, float]]:
    for look in range(1, LOOKS + 1):
        yield look * STEP, judge.threshold


def looks_that_tune(judge: SimulatedJudge, scores: list[float]) -> Iterator[tuple[int, float]]:
    threshold = judge.threshold
    for look in range(1, LOOKS + 1):
        yield look * STEP, threshold
        threshold = best_threshold(scores, look * STEP)


def looks_after_hints(judge: SimulatedJudge, scores: list[float]) -> Iterator[tuple[int, float]]:
    size = STEP
    for look in range(1, LOOKS + 1):
        yield size, judge.threshold
        counts = checked(scores, size, judge.threshold).strict_agreement
        if gate_verdict(counts, DEFAULT_LIMITS, alpha_of(look)) != "not known yet":
            return
        more = labels_that_would_decide(counts, look)
        if more is None or size + more > MOST:
            return
        size += more + more % 2


PEOPLE = {"grow": looks_that_grow, "hint": looks_after_hints, "tune": looks_that_tune}
RULES = {"5 % each": SeparateLooks, "counted": CountedLooks}


def first_yes(
    judge: SimulatedJudge, people: str, rule: str, runs: int, seed: int = 1
) -> list[tuple[int, float] | None]:
    """Return labels and threshold of the look that let the judge gate, for each run, or None."""
    found = []
    for run in range(runs):
        scores = judge.scores(random.Random(f"{seed} {run}"))
        looks = RULES[rule]()
        plan = PEOPLE[people](judge, scores)
        found.append(next((look for look in plan if looks.gates(scores, *look)), None))
    return found


def share_of_wrong(
    judge: SimulatedJudge, people: str, rule: str, runs: int, seed: int = 1
) -> float:
    """Return the share of runs in which the judge gates with a threshold that must not."""
    found = first_yes(judge, people, rule, runs, seed)
    return sum(look is not None and not judge.deserves(look[1]) for look in found) / runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    how = (given.runs, given.seed)
    print("| must not gate | people | 5 % each | counted |\n| --- | --- | --- | --- |")
    rows = [(judge, people) for judge in UNDESERVING for people in ("grow", "hint")]
    for (name, *rates), people in [*rows, *((judge, "tune") for judge in TUNED)]:
        judge = SimulatedJudge(*rates)
        shares = (f"{share_of_wrong(judge, people, rule, *how):.1%}" for rule in RULES)
        print(f"| {name} | {people} | {' | '.join(shares)} |", flush=True)
    print("\n| may gate | 80 | 160 | 240 | 400 | 800 labels |\n" + "| --- " * 6 + "|")
    for name, *rates in DESERVING:
        found = first_yes(SimulatedJudge(*rates), "grow", "counted", *how)
        sizes = [look[0] for look in found if look is not None]
        shares = (
            f"{sum(size <= most for size in sizes) / given.runs:.0%}"
            for most in (80, 160, 240, 400, 800)
        )
        print(f"| {name} | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    main()
