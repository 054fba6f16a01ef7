"""The numbers of a run and the exit code made from them."""

import math

import pytest

from holodeck.errors import ExitCode
from holodeck.lib.reports.summary import exit_code, summarize
from holodeck.models.test_result import MetricResult, Outcome
from holodeck.models.token_usage import TokenUsage
from support.results import a_report, a_result

PASSED, FAILED = Outcome.PASSED, Outcome.FAILED


def a_run(*outcomes, **fields):
    return a_report(*map(a_result, outcomes), **fields)


def scored(*scores):
    rows = [
        MetricResult(metric_name="bleu", score=score, error=None if score is not None else "boom")
        for score in scores
    ]
    return [a_result(metric_results=[row]) for row in rows]


def test_averages_count_zeros_and_leave_out_what_was_not_computed():
    summary = summarize(scored(1.0, 0.0, None), wall_time_ms=1)

    assert summary.average_scores == {"bleu": 0.5}
    assert summary.metrics_evaluated == {"bleu": 2}
    assert summary.metrics_errored == {"bleu": 1}


def test_a_metric_that_was_never_computed_has_no_average():
    summary = summarize(scored(None), wall_time_ms=1)

    assert summary.average_scores == {}
    assert summary.metrics_errored == {"bleu": 1}


def test_every_test_is_counted_once_by_its_outcome():
    summary = summarize(
        [a_result(), a_result(FAILED), a_result(Outcome.AGENT_ERROR)], wall_time_ms=7
    )

    assert (summary.total_tests, summary.passed, summary.failed) == (3, 1, 2)
    assert summary.outcomes == {"passed": 1, "failed": 1, "agent_error": 1}
    assert summary.pass_rate == pytest.approx(33.333, abs=0.001)
    assert (summary.total_duration_ms, summary.wall_time_ms) == (3702, 7)


def test_tokens_of_all_tests_are_added_up():
    spent = [a_result(token_usage=TokenUsage.of(3, 4)), a_result(), a_result()]

    assert summarize(spent, wall_time_ms=1).token_usage == TokenUsage.of(3, 4)


def test_a_run_without_tests_has_a_summary():
    assert summarize([], wall_time_ms=0).pass_rate == 0


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([], ExitCode.NOTHING_SELECTED),
        ([PASSED], ExitCode.PASSED),
        ([PASSED, FAILED], ExitCode.TEST_FAILED),
        ([FAILED, Outcome.METRIC_ERROR], ExitCode.EVALUATION),
        ([Outcome.METRIC_ERROR, Outcome.AGENT_ERROR, FAILED], ExitCode.EXECUTION),
        ([PASSED, Outcome.UNCHECKED], ExitCode.NOTHING_SELECTED),
        ([Outcome.UNCHECKED, FAILED], ExitCode.TEST_FAILED),
        ([Outcome.FLAKY], ExitCode.PASSED),
        ([PASSED, Outcome.SKIPPED], ExitCode.PASSED),
        ([Outcome.SKIPPED], ExitCode.NOTHING_SELECTED),
    ],
    ids=[
        "none",
        "passed",
        "failed",
        "metric",
        "agent",
        "unchecked",
        "failed-unchecked",
        "flaky",
        "passed-skipped",
        "skipped",
    ],
)
def test_the_exit_code_is_that_of_the_worst_outcome(outcomes, code):
    assert exit_code(a_run(*outcomes)) is code


def test_skipped_tests_are_counted_and_have_no_part_in_the_pass_rate():
    summary = a_run(PASSED, Outcome.FLAKY, FAILED, Outcome.SKIPPED).summary

    assert (summary.total_tests, summary.passed, summary.failed) == (4, 2, 1)
    assert (summary.flaky, summary.skipped) == (1, 1)
    assert summary.pass_rate == pytest.approx(66.667, abs=0.001)


def test_an_interrupted_run_is_never_a_success():
    assert exit_code(a_run(PASSED, interrupted=True, planned_tests=3)) is ExitCode.INTERRUPTED


def test_a_run_that_gave_up_is_never_a_success():
    assert exit_code(a_run(PASSED, stopped="no time", planned_tests=3)) is (
        ExitCode.NOTHING_SELECTED
    )


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([PASSED, Outcome.SKIPPED], ExitCode.BUDGET),
        ([FAILED, Outcome.SKIPPED], ExitCode.BUDGET),
        ([Outcome.SKIPPED], ExitCode.BUDGET),
        ([Outcome.METRIC_ERROR, FAILED], ExitCode.EVALUATION),
        ([Outcome.AGENT_ERROR, Outcome.METRIC_ERROR], ExitCode.EXECUTION),
    ],
    ids=["passed", "failed", "none-ran", "metric-error", "agent-error"],
)
def test_a_used_up_budget_outranks_failures_but_not_what_broke(outcomes, code):
    report = a_run(*outcomes, stopped="the budget is used up", stopped_by="budget")

    assert exit_code(report) is code


def test_the_standard_error_of_a_mean_is_that_of_a_sample():
    summary = summarize(scored(1.0, 0.5, 0.0, None, 0.5), wall_time_ms=1)

    # deviations ½, 0, -½, 0: the variance of the sample is ½ / 3, that of the mean a fourth of it
    assert summary.average_scores == {"bleu": 0.5}
    assert summary.standard_errors == {"bleu": pytest.approx(math.sqrt(0.5 / 3 / 4))}


def test_a_single_score_has_no_standard_error():
    assert summarize(scored(1.0, None), wall_time_ms=1).standard_errors == {}
