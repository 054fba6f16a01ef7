"""Whether a judge may gate: the bounds behind it, against exact and independent figures."""

import itertools
import math

import pytest

from holodeck.lib.judge_check.gate import Limits, decide_gate, gate_verdict, labels_needed
from holodeck.lib.judging.agreement import Agreement


def probability(count, of, rate):
    return math.comb(of, count) * rate**count * (1 - rate) ** (of - count)


def chance_to_gate(good, bad, sensitivity, specificity, limits):
    """The exact probability that a judge with these rates may gate."""
    return sum(
        probability(hits, good, sensitivity) * probability(refused, bad, specificity)
        for hits, refused in itertools.product(range(good + 1), range(bad + 1))
        if probability(hits, good, sensitivity) * probability(refused, bad, specificity) > 1e-9
        and gate_verdict(Agreement(hits, bad - refused, refused, good - hits), limits) == "may gate"
    )


@pytest.mark.parametrize(
    ("sensitivity", "specificity"),
    [(0.8, 0.8), (0.62, 0.98), (0.98, 0.62), (0.7, 0.7), (0.99, 0.9)],
)
def test_a_judge_that_does_not_deserve_it_may_gate_in_5_percent_of_checks_at_most(
    sensitivity, specificity
):
    limits = Limits(min_kappa=0.6, max_false_passes=0.1 if specificity == 0.9 else 0.5)

    assert chance_to_gate(16, 18, sensitivity, specificity, limits) <= 0.05


def test_a_very_good_judge_mostly_may_gate():
    assert chance_to_gate(16, 40, 0.99, 0.999, Limits()) > 0.9


def test_the_bounds_of_false_passes_are_those_of_clopper_and_pearson():
    found = decide_gate(Agreement(30, 3, 27, 0))

    assert found.false_pass_bounds == (
        pytest.approx(0.0211, abs=1e-3),
        pytest.approx(0.2653, abs=1e-3),
    )
    assert decide_gate(Agreement(30, 0, 30, 0)).false_pass_bounds[1] == pytest.approx(
        1 - 0.025 ** (1 / 30), abs=1e-5
    )


def test_the_bounds_of_kappa_enclose_it_and_narrow_with_more_labels():
    few, many = (decide_gate(Agreement(18 * n, 2 * n, 18 * n, 2 * n)) for n in (1, 5))

    assert few.kappa_bounds[0] < many.kappa_bounds[0] < 0.8 < many.kappa_bounds[1]
    assert many.kappa_bounds[1] < few.kappa_bounds[1]


@pytest.mark.parametrize(("good", "bad"), [(0, 40), (40, 0), (9, 60), (60, 9), (0, 0)])
def test_nothing_is_known_without_enough_labels_of_both_kinds(good, bad):
    assert decide_gate(Agreement(good, 0, bad, 0)).verdict == "not known yet"
    assert decide_gate(Agreement(0, bad, 0, good)).verdict == "not known yet"


def test_so_many_more_labels_as_it_says_decide():
    counts = Agreement(38, 2, 58, 2)
    found = decide_gate(counts)
    factor = (counts.total + found.more_labels) / counts.total
    enough = Agreement(*(round(one * factor) for one in (38, 2, 58, 2)))

    assert found.verdict == "not known yet"
    assert decide_gate(enough).verdict == "may gate"


def test_the_labels_that_a_perfect_judge_needs_are_enough():
    more_good, more_bad = labels_needed(3, 12, Limits())

    assert (more_good, more_bad) == (7, 24)
    assert decide_gate(Agreement(10, 0, 36, 0)).verdict == "may gate"
    assert decide_gate(Agreement(10, 0, 35, 0)).verdict == "not known yet"


@pytest.mark.parametrize(
    ("good", "bad", "needed"), [(0, 0, (18, 18)), (13, 13, (5, 5)), (100, 12, (0, 0))]
)
def test_the_labels_of_both_kinds_grow_in_turn_until_a_perfect_judge_may_gate(good, bad, needed):
    limits = Limits(min_kappa=0.8, max_false_passes=0.5)

    more_good, more_bad = labels_needed(good, bad, limits)

    assert (more_good, more_bad) == needed
    assert gate_verdict(Agreement(good + more_good, 0, bad + more_bad, 0), limits) == "may gate"
    fewer = Agreement(good + more_good, 0, bad + more_bad - 1, 0)
    assert needed == (0, 0) or gate_verdict(fewer, limits) == "not known yet"


@pytest.mark.parametrize("counts", [(20, 0, 20, 0), (25, 2, 38, 2), (38, 2, 58, 2)])
def test_half_as_many_more_labels_as_it_says_do_not_decide(counts):
    total, more = sum(counts), decide_gate(Agreement(*counts)).more_labels

    def verdict_with(further):
        scaled = (round(count * (total + further) / total) for count in counts)
        return decide_gate(Agreement(*scaled)).verdict

    assert (verdict_with(more // 2), verdict_with(more)) == ("not known yet", "may gate")
