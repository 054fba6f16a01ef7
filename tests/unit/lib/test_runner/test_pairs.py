"""Pairs of results, what they add up to, and what is concluded from them."""

import pytest

from holodeck.errors import ExitCode
from holodeck.lib.compare.pairs import (
    bootstrap_interval,
    build_comparison,
    build_pair,
)
from holodeck.lib.reports.against import comparison_exit_code, conclusions, render_terminal
from holodeck.models.records.comparison import ComparedAgent, PairVerdict
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import MetricResult, Outcome, Repeats
from holodeck.models.token_usage import Cost, TokenUsage
from support.results import a_report, a_result

CASE = TestCaseModel(name="greets", input="hi")
PASS, FAIL, FLAKY = Outcome.PASSED, Outcome.FAILED, Outcome.FLAKY
ERROR, BROKEN, NOTHING = Outcome.AGENT_ERROR, Outcome.METRIC_ERROR, Outcome.UNCHECKED
STOPPED = a_result(Outcome.SKIPPED, skipped_by="budget", skip_reason="the budget is used up")
SKIPPED = a_result(Outcome.SKIPPED)


def pair(first, second):
    results = [a_result(one) if isinstance(one, Outcome) else one for one in (first, second)]
    return build_pair(0, CASE, *results)


def comparison(*pairs, currency=None, **report):
    first, second = (
        ComparedAgent(name=name, source=f"{name}.yaml", report=a_report(**report))
        for name in ("old", "new")
    )
    return build_comparison(first, second, [pair(*one) for one in pairs], currency)


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (PASS, PASS, "both"),
        (PASS, FLAKY, "both"),
        (PASS, FAIL, "only_first"),
        (FAIL, FLAKY, "only_second"),
        (FAIL, FAIL, "neither"),
        (PASS, ERROR, "undecided"),
        (BROKEN, FAIL, "undecided"),
        (NOTHING, PASS, "undecided"),
        (PASS, STOPPED, "undecided"),
        (PASS, None, "undecided"),
        (STOPPED, STOPPED, "not_run"),
        (None, None, "not_run"),
        (SKIPPED, SKIPPED, "skipped"),
    ],
)
def test_only_two_verdicts_decide_a_pair(first, second, verdict):
    assert pair(first, second).verdict == verdict


@pytest.mark.parametrize(
    ("pairs", "claims"),
    [
        ([(PASS, PASS)] * 3, "does not prove that both agents are equally good"),
        ([(PASS, FAIL)] * 3, "in 25% of comparisons (exact McNemar test, p = 0.25)"),
        ([(PASS, FAIL)] * 3, "neither that one agent is better nor that both are equally good"),
        ([(PASS, FAIL)] * 3, "Fewer than 6 differing cases never can"),
        ([(PASS, FAIL)] * 6, "Luck is an unlikely explanation: A is better"),
        ([(FAIL, PASS)] * 6, "Luck is an unlikely explanation: B is better"),
        ([(PASS, PASS)] * 3, "0% to 56% would pass only on A"),
        ([(PASS, ERROR)], "the comparison says nothing"),
        ([(PASS, PASS), (PASS, ERROR)], "UNDECIDED: 1 of 2 pairs (B: 1 agent error)"),
    ],
)
def test_conclusions_claim_no_more_than_the_counts_show(pairs, claims):
    assert claims in " ".join(conclusions(comparison(*pairs)))


@pytest.mark.parametrize(
    ("pairs", "fail_on", "code"),
    [
        ([(PASS, PASS)], "regression", ExitCode.PASSED),
        ([(PASS, FAIL)], "regression", ExitCode.TEST_FAILED),
        ([(PASS, FAIL)], None, ExitCode.PASSED),
        ([(FAIL, FAIL), (FAIL, PASS)], "regression", ExitCode.PASSED),
        ([(PASS, FAIL), (ERROR, PASS)], "regression", ExitCode.EXECUTION),
        ([(PASS, FAIL), (PASS, BROKEN)], "regression", ExitCode.EVALUATION),
        ([(PASS, FAIL), (NOTHING, NOTHING)], "regression", ExitCode.TEST_FAILED),
        ([(PASS, PASS), (NOTHING, NOTHING)], None, ExitCode.NOTHING_SELECTED),
        ([(SKIPPED, SKIPPED)], None, ExitCode.NOTHING_SELECTED),
        ([(SKIPPED, SKIPPED), (PASS, PASS)], None, ExitCode.PASSED),
        ([], None, ExitCode.NOTHING_SELECTED),
    ],
)
def test_the_exit_code_follows_the_rule_and_hides_no_error(pairs, fail_on, code):
    assert comparison_exit_code(comparison(*pairs), fail_on) == code


@pytest.mark.parametrize(
    ("report", "code"),
    [
        ({"interrupted": True}, ExitCode.INTERRUPTED),
        ({"stopped": "enough", "stopped_by": "budget"}, ExitCode.BUDGET),
        ({"stopped": "enough", "stopped_by": "run_timeout"}, ExitCode.NOTHING_SELECTED),
    ],
)
def test_a_run_that_ended_early_is_not_green(report, code):
    assert comparison_exit_code(comparison((PASS, PASS), **report)) == code


def test_numbers_count_only_where_both_agents_report_them():
    def result(score, tokens, elapsed_ms, cost):
        return a_result(
            metric_results=[MetricResult(metric_name="bleu", score=score, passed=True)],
            token_usage=None if tokens is None else TokenUsage.of(tokens, 0),
            agent_time_ms=elapsed_ms,
            cost=Cost(currency="EUR", total=9, agent=cost, judges=9),
        )

    found = comparison(
        (result(0.5, 100, 10, 1), result(0.75, 50, 30, 2)),
        (result(1.0, 100, 20, 1), result(None, None, 20, None)),
        currency="EUR",
    )

    assert found.tokens.model_dump() == {
        "first": 100,
        "second": 50,
        "pairs": 1,
        "unknown": 1,
        "interval": None,
    }
    assert found.scores["bleu"].model_dump() == {
        "first": 0.5, "second": 0.75, "pairs": 1, "unknown": 1, "interval": None,
    }  # fmt: skip
    assert (found.latency_ms.first, found.latency_ms.second) == (15, 25)
    assert (found.cost.first, found.cost.second) == (1, 2)
    shown = " ".join(render_terminal(found).split())
    assert "cost of the agent 1.00 EUR → 2.00 EUR +100% 1 pair, unknown for 1" in shown


def test_numbers_of_a_repeated_case_are_those_of_one_repetition():
    runs = [a_result(token_usage=TokenUsage.of(10, 0), agent_time_ms=4) for _ in range(2)]
    repeats = Repeats(planned=2, needed=1, passed=2, runs=runs)
    twice = a_result(
        repeats=repeats,
        token_usage=TokenUsage.of(20, 0),
        cost=Cost(currency="USD", total=4, agent=4, judges=0),
    )

    found = pair(twice, runs[0])

    assert (found.tokens.first, found.latency_ms.first, found.cost.first) == (10, 4, 2)
    assert found.tokens.delta == 0
    assert found.verdict is PairVerdict.BOTH


def test_the_interval_of_a_difference_contains_it_and_is_always_the_same():
    differences = [0.1, 0.3, -0.1, 0.2, 0.0, 0.25]

    low, high = bootstrap_interval(differences)

    assert low < sum(differences) / 6 < high
    assert bootstrap_interval(differences) == (low, high)
    assert bootstrap_interval([0.5]) is None


def test_the_interval_of_the_opposite_differences_is_the_opposite_interval():
    differences = [0.01 * at**2 for at in range(26)]

    low, high = bootstrap_interval(differences)

    assert bootstrap_interval([-one for one in differences]) == (-high, -low)
    assert (low, high) == bootstrap_interval(differences, resamples=2_000)
    assert (low, high) != bootstrap_interval(differences, resamples=1_999)
