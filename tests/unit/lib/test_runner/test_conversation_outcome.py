"""What the end of a conversation and its criteria decide about a case."""

import pytest

from holodeck.lib.test_runner.case_state import CaseState, Grades
from holodeck.lib.test_runner.grading.checks import CaseChecks
from holodeck.lib.test_runner.grading.criteria import UNJUDGED
from holodeck.lib.test_runner.grading.grade import (
    NO_CONCLUSION,
    UNGRADED,
    decide_outcome,
    ending_errors,
)
from holodeck.models.results.outcome import INTERRUPTED, ConversationEnd, CriterionRow
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import MetricResult, Outcome

UNCHECKED, PASSED, FAILED = Outcome.UNCHECKED, Outcome.PASSED, Outcome.FAILED


def criterion(status, **fields):
    return CriterionRow(criterion="kind", status=status, **fields)


def state_of(ending=None, late_ending=None, **grades):
    case = TestCaseModel(simulate={"situation": "x"})
    return CaseState(case, ending=ending, late_ending=late_ending, grades=Grades(**grades))


def outcome_of(state):
    outcome, _ = decide_outcome(state, CaseChecks([]))
    return outcome


def ending_of(state):
    _, ending = decide_outcome(state, CaseChecks([]))
    return ending


@pytest.mark.parametrize(
    ("ending", "outcome", "errors"),
    [
        (None, UNCHECKED, []),
        (ConversationEnd(code="judged"), UNCHECKED, []),
        (ConversationEnd(code="succeeded", passed=True, reasoning="well"), PASSED, []),
        (ConversationEnd(code="failed", passed=False, reasoning="bad"), FAILED, ["bad"]),
        (ConversationEnd(code="max_turns", passed=False), FAILED, ["max_turns"]),
        (UNJUDGED, Outcome.METRIC_ERROR, ["still waiting for the judge"]),
        (ConversationEnd(code="x", passed=True, broke=True), Outcome.METRIC_ERROR, ["x"]),
    ],
    ids=["none", "open", "succeeded", "failed", "by its code", "broke", "broke but content"],
)
def test_an_ending_decides_unless_it_leaves_that_to_the_checks(ending, outcome, errors):
    assert outcome_of(state_of(ending)) is outcome
    assert ending_errors(ending) == errors


@pytest.mark.parametrize(
    ("rows", "outcome"),
    [
        ([], UNCHECKED),
        ([criterion("passed")], PASSED),
        ([criterion("passed"), criterion("failed")], FAILED),
        ([criterion("passed"), criterion("inconclusive")], FAILED),
        ([criterion("failed", required=False)], UNCHECKED),
        ([criterion("passed", required=False)], UNCHECKED),
        ([criterion("passed"), criterion("failed", required=False)], PASSED),
    ],
    ids=[
        "none",
        "held",
        "one missed",
        "one unsure",
        "optional",
        "optional held",
        "beside optional",
    ],
)
def test_every_required_criterion_has_to_hold(rows, outcome):
    assert outcome_of(state_of(criteria=rows)) is outcome


OPEN_SCRIPT = ConversationEnd(code="no_conclusion", reasoning="the script ended")


def test_a_script_that_nothing_concludes_fails_only_where_no_check_decides():
    undecided = state_of(OPEN_SCRIPT)
    decided = state_of(OPEN_SCRIPT, rows=[MetricResult(metric_name="a", score=1, passed=True)])
    other = state_of(ConversationEnd(code="judged"))

    assert (outcome_of(undecided), ending_errors(ending_of(undecided))) == (FAILED, [NO_CONCLUSION])
    assert (outcome_of(decided), ending_errors(ending_of(decided))) == (PASSED, [])
    assert ending_of(decided).reasoning == OPEN_SCRIPT.reasoning
    assert (outcome_of(other), ending_of(other)) == (UNCHECKED, ConversationEnd(code="judged"))
    assert outcome_of(state_of()) is UNCHECKED


def test_time_that_runs_out_is_told_where_it_was_not_the_agents():
    late = state_of(late_ending=UNGRADED)

    assert late.end_late("the case took longer than 1 s")
    assert ending_errors(late.final_ending) == [
        "the case took longer than 1 s: still computing metrics"
    ]
    assert outcome_of(late) is Outcome.METRIC_ERROR
    assert not state_of().end_late("x")
    assert not state_of(ConversationEnd(code="judged")).end_late("x")


def test_a_case_that_is_interrupted_while_it_is_graded_says_so():
    cut = state_of(late_ending=UNGRADED)

    assert cut.end_late("interrupted", INTERRUPTED)
    assert cut.final_ending.is_interrupted
    assert ending_errors(cut.final_ending) == ["interrupted: still computing metrics"]
    assert not UNGRADED.is_interrupted
