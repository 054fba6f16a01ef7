"""Reports as DataFrames: stable columns and types, and unknown values that stay unknown."""

import sys

import pytest

from holodeck.errors import MissingExtra
from holodeck.lib.reports.tables import CASE_COLUMNS, METRIC_COLUMNS
from holodeck.models.results.evidence import evidence
from holodeck.models.results.outcome import ModelCost
from holodeck.models.test_result import (
    MetricResult,
    Outcome,
    Repeats,
    ToolInvocation,
    TurnResult,
)
from holodeck.models.token_usage import Cost, TokenUsage
from support.results import a_report, a_result

CONTAINS = MetricResult(metric_name="contains", score=1.0, passed=True)


def types_of(frame):
    return {name: str(dtype) for name, dtype in frame.dtypes.items()}


def test_columns_and_types_do_not_depend_on_the_results():
    empty, full = a_report(), a_report(a_result(metric_results=[CONTAINS]), a_result())

    for report in (empty, full):
        assert types_of(report.to_dataframe()) == CASE_COLUMNS
        assert types_of(report.metrics_dataframe()) == METRIC_COLUMNS
    assert (len(empty.to_dataframe()), len(full.to_dataframe())) == (0, 2)


def test_a_case_is_a_flat_row():
    import pandas as pd  # not above: it takes every process of the tests 0.2 seconds

    result = a_result(
        suite="billing",
        test_id="b1",
        tags=["slow", "money"],
        location="agent.yaml:4:5",
        agent_time_ms=1000,
        token_usage=TokenUsage.of(10, 5),
        tool_invocations=[ToolInvocation(name="find"), ToolInvocation(name="pay", server="bank")],
        evidence=evidence(tool_calls="backend", token_usage="backend"),
        metric_results=[CONTAINS.model_copy(update={"judge_calls": 2})],
        judge_cost=ModelCost(calls=1),
        cost=Cost(currency="EUR", total=0.5, agent=0.25, judges=0.25),
    )

    frame = a_report(result).to_dataframe()

    assert frame["reason"][0] is frame["ground_truth"][0] is pd.NA
    [row] = frame.drop(columns=["reason", "ground_truth"]).to_dict("records")
    assert row.pop("timestamp").isoformat() == "2026-01-01T00:00:00+00:00"
    assert row == {
        "agent": "helper", "suite": "billing", "test_id": "b1", "test_name": "greets",
        "location": "agent.yaml:4:5", "tags": "slow, money", "outcome": "passed", "passed": True,
        "input": "hi", "response": "hello", "turns": 1, "runs": 1, "runs_passed": 1,
        "tool_calls": 2, "tools": "find, bank-pay", "prompt_tokens": 10, "completion_tokens": 5,
        "total_tokens": 15, "judge_calls": 3, "cost": 0.5, "currency": "EUR",
        "duration_ms": 1234, "agent_ms": 1000,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "unknown"),
    [
        ({"agent_time_ms": 5, "token_usage": TokenUsage()}, {"total_tokens", "tool_calls", "cost"}),
        ({"agent_response": None}, {"response", "total_tokens", "agent_ms"}),
        ({"outcome": Outcome.SKIPPED}, {"passed", "response", "judge_calls", "duration_ms"}),
        ({"cost": Cost(currency="EUR", total=None, agent=None, judges=0)}, {"cost"}),
    ],
    ids=["not reported", "no response", "skipped", "no price"],
)
def test_what_is_unknown_is_neither_zero_nor_empty(fields, unknown):
    frame = a_report(a_result(**fields)).to_dataframe()

    assert unknown <= set(frame.columns[frame.isna().all()])


def test_an_error_counts_as_not_passed_so_that_means_do_not_rise():
    frame = a_report(a_result(), a_result(Outcome.AGENT_ERROR, errors=["gone"])).to_dataframe()

    assert frame["passed"].mean() == 0.5
    assert frame["reason"][1] == "gone"


def test_repetitions_and_turns_have_rows_of_metrics():
    turns = [TurnResult(input="hi", metric_results=[CONTAINS])]
    run = a_result(turns=turns, metric_results=[CONTAINS], agent_time_ms=1)
    repeats = Repeats(planned=2, needed=2, passed=2, runs=[run, run])

    report = a_report(a_result(repeats=repeats))
    frame, cases = report.metrics_dataframe(), report.to_dataframe()

    assert list(frame["repetition"]) == [1, 1, 2, 2]
    assert list(frame["turn"].fillna(0)) == [1, 0, 1, 0]
    assert list(frame["threshold"].isna()) == [True] * 4
    assert (cases["runs"][0], cases["runs_passed"][0]) == (2, 2)


def test_half_a_surrogate_pair_of_an_answer_stays_readable():
    frame = a_report(a_result(agent_response="a\ud800b")).to_dataframe()

    assert frame["response"][0] == "a?b"


def test_a_dataframe_without_pandas_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(MissingExtra, match=r"a DataFrame: needs an optional library.*pandas"):
        a_report().to_dataframe()
