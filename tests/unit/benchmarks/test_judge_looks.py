"""How often a judge gets through when people look again: a short run of the simulation."""

import pytest
from judge_looks import SimulatedJudge, first_yes, share_of_wrong

RUNS = 200
WRONG = {
    "at growing labels": (SimulatedJudge(0.98, 0.90), "grow", RUNS),
    "with a threshold that is tuned on the labels": (SimulatedJudge(0.89, 0.89), "tune", 60),
}


@pytest.mark.parametrize(("judge", "people", "runs"), WRONG.values(), ids=WRONG)
def test_a_judge_that_must_not_gate_gets_through_ten_looks_in_5_percent_of_runs_at_most(
    judge, people, runs
):
    assert share_of_wrong(judge, people, "counted", runs) <= 0.05


def test_looks_that_do_not_know_of_each_other_let_more_through():
    judge = SimulatedJudge(0.98, 0.90)

    assert share_of_wrong(judge, "grow", "5 % each", RUNS) > 0.06


def test_a_judge_with_a_kappa_of_0_8_gates_in_the_end():
    found = first_yes(SimulatedJudge(0.82, 0.98), "grow", "counted", 20)

    assert sum(look is not None for look in found) > 17
