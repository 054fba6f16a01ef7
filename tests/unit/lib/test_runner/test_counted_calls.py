"""Requests to models are counted whatever comes of them, so that a budget of calls holds."""

import pytest

from fakes import ScriptedBackend
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.reports.costs import calls_of, tokens_of
from holodeck.models.test_result import Outcome
from holodeck.models.token_usage import TokenUsage
from support.backend import echo
from support.played import JUDGE, USER, an_agent, report_of, says, words

METRIC = [{"type": "judge", "name": "polite", "criteria": ["Is the answer polite?"]}]
QUICK = {"max_retries": 1, "retry_delay": 0.01}


@pytest.fixture
def run(tmp_path, fake_openai):
    async def run_it(limits, *cases, script=echo):
        agent = an_agent(fake_openai, *cases)
        return await report_of(tmp_path, agent, ScriptedBackend(script), **limits)

    return run_it


async def test_a_judge_that_is_out_of_order_was_asked_all_the_same(run, fake_openai):
    fake_openai.otherwise(status=500)

    report = await run(QUICK, {"input": "hi", "evaluations": METRIC})

    [result] = report.results
    [row] = result.metric_results
    assert (row.judge_calls, row.judge_failed) == (len(fake_openai.requests), 2)
    assert row.error is not None
    assert calls_of(result) == 3


async def test_a_try_that_failed_is_counted_beside_the_answer(run, fake_openai):
    fake_openai.reply(status=500).otherwise("yes")

    report = await run(QUICK, {"input": "hi", "evaluations": METRIC})

    [row] = report.results[0].metric_results
    assert row.judge_calls == len(fake_openai.requests)
    assert row.judge_failed == 1


async def test_a_part_that_an_endpoint_refuses_costs_a_request(run, fake_openai):
    refusal = {"error": {"message": "response_format is not supported"}}
    fake_openai.when(JUDGE, status=400, json=refusal, times=1).when(JUDGE, words("passed"))

    report = await run(QUICK, {"input": "hi", "criteria": ["Greets"]})

    cost = report.results[0].judge_cost
    assert (cost.calls, cost.failed) == (len(fake_openai.requests), 1)


async def test_a_simulated_user_that_breaks_was_asked(run, fake_openai):
    fake_openai.when(USER, says("go on"), times=1).otherwise(status=500)

    report = await run(QUICK, {"simulate": {"situation": "x"}})

    [result] = report.results
    assert result.ending.code == "simulator_error"
    assert (result.simulator_cost.calls, result.simulator_cost.failed) == (3, 2)


LATE = {
    "input": {"input": "hi", "criteria": ["Greets"]},
    "script": {"script": [{"user": "hi"}, "agent", "succeed"], "criteria": ["Greets"]},
    "checkpoint": {"script": [{"user": "hi"}, "agent", {"judge": ["Greets"]}]},
}


@pytest.mark.parametrize("case", LATE.values(), ids=LATE)
async def test_a_judge_that_is_not_waited_for_any_more_was_asked(run, fake_openai, case):
    fake_openai.otherwise("", latency_s=600)

    report = await run({"case_timeout": 1.5}, case)

    [result] = report.results
    assert result.outcome is Outcome.METRIC_ERROR
    assert (result.judge_cost.calls, result.judge_cost.failed) == (1, 1)


async def test_a_budget_of_calls_counts_what_failed(run, fake_openai):
    fake_openai.otherwise(status=500)
    cases = [{"name": name, "input": "hi", "evaluations": METRIC} for name in "ab"]

    report = await run(QUICK | {"max_calls": 3}, *cases)

    assert [one.outcome for one in report.results] == [Outcome.METRIC_ERROR, Outcome.SKIPPED]
    assert report.stopped_by == "budget"


async def test_requests_that_failed_leave_the_tokens_known(run, fake_openai):
    fake_openai.otherwise(status=500)
    answer = ExecutionResult("hello", token_usage=TokenUsage.of(3, 4))

    report = await run(QUICK, {"input": "hi", "evaluations": METRIC}, script={"hi": answer})

    [row] = report.results[0].metric_results
    assert row.judge_tokens.total_tokens == 0
    assert tokens_of(report.results[0]) == 7
