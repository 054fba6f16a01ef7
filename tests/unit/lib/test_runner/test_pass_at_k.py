"""Estimates of pass@k and pass^k: against counting by hand, and where there are none."""

from itertools import combinations

import pytest

from holodeck.lib.reports.summary import pass_all, pass_any, summarize
from holodeck.lib.test_runner.scheduling.repeats import PassBar, combine_repetitions
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome
from support.results import a_result

PASS, FAIL = Outcome.PASSED, Outcome.FAILED


def repeated(*outcomes, planned=None):
    runs = [a_result(one) for one in outcomes]
    bar = PassBar(planned or len(runs), 1)
    return combine_repetitions(TestCaseModel(input="go"), bar, runs)


@pytest.mark.parametrize("passed", range(6))
@pytest.mark.parametrize("k", range(1, 6))
def test_both_are_the_shares_of_all_ways_to_draw_k_runs(passed, k):
    draws = list(combinations([True] * passed + [False] * (5 - passed), k))

    assert pass_any(passed, 5, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert pass_all(passed, 5, k) == pytest.approx(sum(map(all, draws)) / len(draws))


def test_the_summary_takes_the_mean_over_the_repeated_cases():
    results = [repeated(PASS, PASS), repeated(PASS, FAIL), a_result(FAIL)]

    assert summarize(results, 0).pass_at_k == pytest.approx({1: 0.75, 2: 1.0})
    assert summarize(results, 0).pass_all_k == pytest.approx({1: 0.75, 2: 0.5})


@pytest.mark.parametrize(
    "results",
    [
        [],
        [a_result()],
        [repeated(PASS, PASS), repeated(PASS, planned=2)],
        [repeated(PASS, Outcome.AGENT_ERROR)],
    ],
    ids=["nothing", "not-repeated", "cut-short", "broken"],
)
def test_there_is_no_estimate_from_runs_that_were_chosen(results):
    assert summarize(results, 0).pass_at_k == {}


def test_k_goes_up_to_the_fewest_repetitions_of_a_case():
    results = [repeated(PASS, PASS, FAIL), repeated(PASS, FAIL)]

    assert summarize(results, 0).pass_at_k == pytest.approx({1: (2 / 3 + 1 / 2) / 2, 2: 1.0})
