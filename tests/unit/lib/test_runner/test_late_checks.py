"""Cases that end before they are decided: their time runs out, or their user is done."""

import time

import pytest

from fakes import ScriptedBackend
from holodeck.errors import ExitCode
from holodeck.lib.reports.summary import exit_code
from holodeck.models.test_result import Outcome
from support.played import USER, an_agent, report_of, says

HANGS = """\
import asyncio
import threading
from importlib import import_module  # keeps the metrics in this process, whose clock they change

end_the_case = import_module("support.time_is_over").end_the_case


async def forever(*_):
    await asyncio.Event().wait()


def blocks(state):
    threading.Event().wait()


async def answers(response):
    await asyncio.Event().wait()


async def ends_the_case(response):
    end_the_case()
    await asyncio.Event().wait()


async def step_that_ends_the_case(state):
    await ends_the_case("")


async def cancels_itself(response):
    raise asyncio.CancelledError


async def holds_the_loop(response):
    end_the_case()  # nothing else gets a turn before it returns
    return 1.0
"""
METRIC = [{"metric": "late:answers", "threshold": 0.5}]
HOUR = 3600


@pytest.fixture
def run_late(tmp_path, fake_openai):
    (tmp_path / "late.py").write_text(HANGS)

    async def run_it(seconds=1, **case):
        agent = an_agent(fake_openai, {"name": "late", **case}).with_base_dir(tmp_path)
        report = await report_of(tmp_path, agent, ScriptedBackend(), case_timeout=seconds)
        return report.results[0]

    return run_it


@pytest.mark.parametrize(
    ("case", "what"),
    [
        ({"input": "hi", "evaluations": METRIC}, "still computing metrics"),
        ({"turns": [{"input": "hi", "evaluations": METRIC}]}, "still computing metrics"),
        ({"turns": [{"input": "hi"}], "evaluations": METRIC}, "still computing metrics"),
        (
            {"script": [{"user": "hi"}, "agent", {"call": "late:forever"}, "succeed"]},
            "step 3 (call) of the script was still running",
        ),
        (
            {"script": [{"user": "hi"}, "agent", {"call": "late:blocks"}, "succeed"]},
            "step 3 (call) of the script was still running",
        ),
    ],
    ids=["input", "turn", "conversation", "script", "blocking script"],
)
async def test_a_check_that_never_ends_is_not_the_agents_error(run_late, case, what):
    result = await run_late(**case)

    assert result.outcome is Outcome.METRIC_ERROR
    assert result.reasons()[0] == f"the case took longer than 1 s: {what}"


async def test_a_metric_that_holds_the_loop_until_time_is_over_is_not_the_agents_error(run_late):
    metric = [{"metric": "late:holds_the_loop", "threshold": 0.5}]

    result = await run_late(HOUR, input="hi", evaluations=metric)

    assert result.outcome is Outcome.METRIC_ERROR
    assert result.reasons()[0] == "the case took longer than 3600 s: still computing metrics"


NOT_DONE = "the case ended before the metric was computed"
GOOD = [{"metric": "contains", "value": "OK"}]
TWO = [*GOOD, {"metric": "late:ends_the_case", "threshold": 0.5}]


def rows_of(part):
    return [(row.passed, row.error) for row in part.metric_results]


async def test_what_was_computed_before_the_time_was_over_is_kept(run_late):
    result = await run_late(HOUR, input="hi", evaluations=TWO)

    assert rows_of(result) == [(True, None), (False, NOT_DONE)]
    assert result.reasons() == [
        "the case took longer than 3600 s: still computing metrics",
        f"ends_the_case: {NOT_DONE}",
    ]
    assert result.outcome is Outcome.METRIC_ERROR
    assert result.agent_response == "OK: hi"


async def test_what_was_computed_of_turns_before_the_time_was_over_is_kept(run_late):
    turns = [
        {"input": "a", "evaluations": GOOD},
        {"input": "b", "evaluations": TWO},
        {"input": "c", "evaluations": GOOD},
    ]

    result = await run_late(HOUR, turns=turns)

    first, second, third = result.turns
    assert rows_of(first) == [(True, None)]
    assert rows_of(second) == [(True, None), (False, NOT_DONE)]
    assert (third.input, rows_of(third)) == ("c", [])
    assert result.outcome is Outcome.METRIC_ERROR


LATE_STEPS = {
    "check": ({"check": {"evaluations": TWO}}, [(True, None), (False, NOT_DONE)]),
    "call": ({"call": "late:step_that_ends_the_case"}, []),
}


@pytest.mark.parametrize(("step", "rows"), LATE_STEPS.values(), ids=LATE_STEPS)
async def test_what_steps_found_before_the_time_was_over_is_kept(run_late, step, rows):
    steps = [{"user": "hi"}, "agent", {"check": {"evaluations": GOOD}}, step, "succeed"]

    result = await run_late(HOUR, script=steps)

    [turn] = result.turns
    assert rows_of(turn) == [(True, None), *rows]
    assert result.outcome is Outcome.METRIC_ERROR


CANCELLING = [{"metric": "late:cancels_itself", "threshold": 0.5}, *GOOD]


@pytest.mark.parametrize("metrics", [CANCELLING[:1], CANCELLING], ids=["alone", "beside another"])
async def test_a_metric_that_cancels_itself_is_an_error_and_no_end_of_the_run(run_late, metrics):
    result = await run_late(HOUR, input="hi", evaluations=metrics)

    assert result.metric_results[0].error == "the metric cancelled itself"
    assert all(row.passed for row in result.metric_results[1:])


async def test_what_the_agent_did_wrong_outranks_a_metric_that_never_ends(run_late):
    result = await run_late(input="hi", expected_tools=["search"], evaluations=METRIC)

    assert result.outcome is Outcome.FAILED


async def test_a_script_that_goes_on_after_its_user_is_done_says_what_to_write(
    run_late, fake_openai
):
    fake_openai.when(USER, says("", done=True))
    steps = [{"user": "hi"}, "agent", "user", "agent"]

    result = await run_late(script=steps, simulate={"situation": "x"}, evaluations=METRIC)

    assert result.outcome is Outcome.METRIC_ERROR
    assert "a simulated user who is done" in result.reasons()[0]
    assert "write 'proceed'" in result.reasons()[0]


async def test_an_agent_that_holds_the_loop_until_its_time_is_over_is_an_agent_error(
    tmp_path, fake_openai
):
    seconds = 0.05

    def holds_the_loop(_):
        begun = time.perf_counter()
        while time.perf_counter() < begun + seconds:
            pass  # nothing else gets a turn before it returns
        return "OK"

    agent = an_agent(fake_openai, {"name": "late", "input": "hi", "evaluations": GOOD})

    report = await report_of(
        tmp_path, agent, ScriptedBackend(holds_the_loop), case_timeout=seconds / 2
    )

    [result] = report.results
    assert result.outcome is Outcome.AGENT_ERROR
    assert result.reasons() == ["the case took longer than 0.025 s"]
    assert exit_code(report) is ExitCode.EXECUTION
