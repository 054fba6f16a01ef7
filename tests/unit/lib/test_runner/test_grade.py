"""What the checks of a case or turn decide."""

import pytest

from holodeck.lib.evaluators.observation_metrics import LatencyEvaluator
from holodeck.lib.test_runner.grading.checks import Check
from holodeck.lib.test_runner.grading.grade import outcome_of_checks
from holodeck.models.results.outcome import combine_outcomes
from holodeck.models.test_result import MetricResult, Outcome, ToolCheck

PASSED = MetricResult(metric_name="a", score=1, passed=True)
FAILED = MetricResult(metric_name="a", score=0, passed=False)
BROKEN = MetricResult(metric_name="a", passed=False, error="boom")
UNSURE = MetricResult(metric_name="a", score=0.5, threshold=0.5, inconclusive=True)
OPTIONAL = {"required": False}
NOT_REQUIRED = [row.model_copy(update=OPTIONAL) for row in (PASSED, FAILED, BROKEN, UNSURE)]
REPORTED = MetricResult(metric_name="a", score=0.5)
MISSED = ToolCheck(expectation="x", passed=False)
MET = ToolCheck(expectation="x", passed=True)


@pytest.mark.parametrize(
    ("rows", "tools", "outcome"),
    [
        ([PASSED], [], Outcome.PASSED),
        ([PASSED, FAILED], [], Outcome.FAILED),
        ([PASSED, BROKEN], [], Outcome.METRIC_ERROR),
        ([PASSED, UNSURE], [], Outcome.METRIC_ERROR),
        ([FAILED, UNSURE], [], Outcome.FAILED),
        ([UNSURE], [MISSED], Outcome.FAILED),
        ([UNSURE], [MET], Outcome.METRIC_ERROR),
        ([REPORTED], [], Outcome.UNCHECKED),
        ([REPORTED], [MET], Outcome.PASSED),
        ([PASSED, REPORTED], [], Outcome.PASSED),
        ([PASSED], [MET, MISSED], Outcome.FAILED),
        ([BROKEN], [MET, MISSED], Outcome.FAILED),
        ([BROKEN, UNSURE], [], Outcome.METRIC_ERROR),
        ([BROKEN, FAILED], [], Outcome.FAILED),
        ([], [], Outcome.UNCHECKED),
        ([PASSED, *NOT_REQUIRED], [], Outcome.PASSED),
        ([FAILED, *NOT_REQUIRED], [], Outcome.FAILED),
        (NOT_REQUIRED, [], Outcome.UNCHECKED),
    ],
)
def test_what_is_decided_outranks_what_is_not(rows, tools, outcome):
    assert outcome_of_checks([], tools, rows, []) is outcome


@pytest.mark.parametrize("row", [BROKEN, UNSURE], ids=["broken", "unsure"])
def test_a_metric_that_must_decide_fails_a_case_that_it_leaves_open(row):
    check = Check("a", LatencyEvaluator(max_ms=1), fail_on_error=True)

    assert outcome_of_checks([], [], [PASSED, row], [check]) is Outcome.FAILED


@pytest.mark.parametrize("row", [BROKEN, UNSURE], ids=["broken", "unsure"])
def test_one_metric_that_must_decide_is_enough_to_fail_beside_others_that_need_not(row):
    check = Check("a", LatencyEvaluator(max_ms=1), fail_on_error=True)
    other = row.model_copy(update={"metric_name": "b"})

    assert outcome_of_checks([], [], [row, other], [check]) is Outcome.FAILED
    assert outcome_of_checks([], [], [other], [check]) is Outcome.METRIC_ERROR


@pytest.mark.parametrize("rows", [[], [PASSED], [BROKEN], [UNSURE], [REPORTED]])
def test_what_the_agent_did_wrong_by_itself_fails_the_case(rows):
    assert outcome_of_checks(["it answered nothing"], [MET], rows, []) is Outcome.FAILED


@pytest.mark.parametrize(
    ("outcomes", "outcome"),
    [
        ([Outcome.PASSED, Outcome.FAILED, Outcome.METRIC_ERROR], Outcome.FAILED),
        ([Outcome.PASSED, Outcome.METRIC_ERROR, Outcome.UNCHECKED], Outcome.METRIC_ERROR),
        ([Outcome.UNCHECKED, Outcome.PASSED], Outcome.PASSED),
        ([Outcome.UNCHECKED], Outcome.UNCHECKED),
        ([], Outcome.UNCHECKED),
    ],
)
def test_a_conversation_ends_as_the_worst_of_its_parts(outcomes, outcome):
    assert combine_outcomes(outcomes) is outcome
    assert combine_outcomes(outcomes[::-1]) is outcome
