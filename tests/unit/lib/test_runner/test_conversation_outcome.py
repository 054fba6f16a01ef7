"""What a case came to by its ending and its criteria."""

import pytest

from holodeck.lib.test_runner.conversation_outcome import (
    NO_CONCLUSION,
    UNGRADED,
    UNJUDGED,
    ConversationOutcome,
)
from holodeck.models.outcome import ConversationEnd, CriterionRow
from holodeck.models.test_result import Outcome

UNCHECKED, PASSED, FAILED = Outcome.UNCHECKED, Outcome.PASSED, Outcome.FAILED


def criterion(status, **fields):
    return CriterionRow(criterion="kind", status=status, **fields)


@pytest.mark.parametrize(
    ("ending", "outcome", "errors"),
    [
        (None, UNCHECKED, []),
        (ConversationEnd(code="judged"), UNCHECKED, []),
        (ConversationEnd(code="succeeded", passed=True, reasoning="well"), PASSED, []),
        (ConversationEnd(code="failed", passed=False, reasoning="bad"), FAILED, ["bad"]),
        (ConversationEnd(code="max_turns", passed=False), FAILED, ["max_turns"]),
        (UNJUDGED, Outcome.METRIC_ERROR, ["the judge has not answered"]),
        (ConversationEnd(code="x", passed=True, broke=True), Outcome.METRIC_ERROR, ["x"]),
    ],
    ids=["none", "open", "succeeded", "failed", "by its code", "broke", "broke but content"],
)
def test_an_ending_decides_unless_it_leaves_that_to_the_checks(ending, outcome, errors):
    conclusion = ConversationOutcome(ending)

    assert conclusion.outcomes == [outcome, UNCHECKED]
    assert conclusion.errors == errors


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
    assert ConversationOutcome(criteria=rows).outcomes == [UNCHECKED, outcome]


OPEN_SCRIPT = ConversationEnd(code="no_conclusion", reasoning="the script came to its end")


def test_a_script_that_nothing_concludes_fails_only_where_no_check_decides():
    undecided = ConversationOutcome(OPEN_SCRIPT).decided_as(UNCHECKED)
    decided = ConversationOutcome(OPEN_SCRIPT.model_copy(update={"passed": False})).decided_as(
        PASSED
    )
    other = ConversationOutcome(ConversationEnd(code="judged"))

    assert (undecided.outcomes[0], undecided.errors) == (FAILED, [NO_CONCLUSION])
    assert (decided.outcomes[0], decided.errors) == (UNCHECKED, [])
    assert decided.ending.reasoning == OPEN_SCRIPT.reasoning
    assert other.decided_as(UNCHECKED) == other
    assert ConversationOutcome().decided_as(UNCHECKED) == ConversationOutcome()


def test_time_that_runs_out_is_told_where_it_was_not_the_agents():
    late = ConversationOutcome(UNGRADED).out_of_time("the case took longer than 1 s")

    assert late.errors == ["the case took longer than 1 s: not every metric was done"]
    assert late.outcomes[0] is Outcome.METRIC_ERROR
    assert ConversationOutcome().out_of_time("x") is None
    assert ConversationOutcome(ConversationEnd(code="judged")).out_of_time("x") is None


def test_a_case_that_is_interrupted_while_it_is_graded_says_so():
    cut = ConversationOutcome(UNGRADED).cut_off

    assert cut.ending.is_interrupted
    assert cut.errors == ["interrupted: not every metric was done"]
    assert ConversationOutcome().cut_off is None
    assert not UNGRADED.is_interrupted
