"""Cases that end before they are decided: their time runs out, or their user is done."""

import pytest

from fakes import ScriptedBackend
from holodeck.models.test_result import Outcome
from support.played import USER, an_agent, report_of, says

HANGS = """\
import asyncio
import threading
import time


async def forever(*_):
    await asyncio.Event().wait()


def blocks(state):
    threading.Event().wait()


async def answers(response):
    await asyncio.Event().wait()


async def holds_the_loop(response):
    time.sleep(1.1)
    return 1.0
"""
METRIC = [{"metric": "late:answers", "threshold": 0.5}]


@pytest.fixture
def run_late(tmp_path, fake_openai):
    (tmp_path / "late.py").write_text(HANGS)

    async def run_it(**case):
        agent = an_agent(fake_openai, {"name": "late", **case}).placed_in(tmp_path)
        report = await report_of(tmp_path, agent, ScriptedBackend(), case_timeout=1)
        return report.results[0]

    return run_it


@pytest.mark.parametrize(
    ("case", "what"),
    [
        ({"input": "hi", "evaluations": METRIC}, "not every metric was done"),
        ({"turns": [{"input": "hi", "evaluations": METRIC}]}, "not every metric was done"),
        ({"turns": [{"input": "hi"}], "evaluations": METRIC}, "not every metric was done"),
        (
            {"script": [{"user": "hi"}, "agent", {"call": "late:forever"}, "succeed"]},
            "step 3 (call) of the script was not done",
        ),
        (
            {"script": [{"user": "hi"}, "agent", {"call": "late:blocks"}, "succeed"]},
            "step 3 (call) of the script was not done",
        ),
    ],
    ids=["input", "turn", "conversation", "script", "blocking script"],
)
async def test_a_check_that_never_ends_is_not_the_agents_error(run_late, case, what):
    result = await run_late(**case)

    assert result.outcome is Outcome.METRIC_ERROR
    assert result.reasons() == [f"the case took longer than 1 s: {what}"]


async def test_a_metric_that_holds_the_loop_until_time_is_over_is_not_the_agents_error(run_late):
    metric = [{"metric": "late:holds_the_loop", "threshold": 0.5}]

    result = await run_late(input="hi", evaluations=metric)

    assert result.outcome is Outcome.METRIC_ERROR
    assert result.reasons() == ["the case took longer than 1 s: not every metric was done"]


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
