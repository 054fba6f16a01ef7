"""Exceptions of a test framework, such as those of `pytest.skip()`, end a scenario and its test."""

import asyncio
import threading

import pytest

from holodeck import scenario
from holodeck.lib.conversation.result_listeners import add_result_listener
from holodeck.pytest_plugin import MEANINGS
from support.participants import a_user, an_agent

WORDS = {
    "fail": (pytest.fail, pytest.fail.Exception, "failed", "step_failed", "ERROR"),
    "skip": (pytest.skip, pytest.skip.Exception, "error", "skipped", "CANCELLED"),
    "xfail": (pytest.xfail, pytest.xfail.Exception, "error", "skipped", "CANCELLED"),
    "exit": (pytest.exit, pytest.exit.Exception, "error", "skipped", "CANCELLED"),
}
OUTCOMES = pytest.mark.parametrize("word", WORDS)
PLAYS = pytest.mark.parametrize("play", [scenario.run, scenario.arun], ids=["run", "arun"])


@pytest.fixture
def results():
    """The results that the plugin gets."""
    results = []
    end = add_result_listener(lambda _, result: results.append(result), MEANINGS)
    yield results
    end()


@PLAYS
@OUTCOMES
async def test_an_exception_that_ends_a_test_propagates_and_is_reported(play, word, results):
    end, kind, status, code, event = WORDS[word]
    events = []
    script = [scenario.user("hi"), lambda _: end("not today")]

    with pytest.raises(kind, match="not today"):
        await play("n", "d", [a_user(), an_agent()], script=script, events=events.append)

    [result] = results
    assert (result.status, result.reason_code) == (status, code)
    assert "step 2 (<lambda>)" in result.reasoning
    assert result.messages == [{"role": "user", "content": "hi"}]
    assert events[-1].status == event
    assert events[-1].result is result


@PLAYS
async def test_an_adapter_may_skip_its_test(play):
    agents = [a_user(), an_agent(lambda _: pytest.skip("no key"))]

    with pytest.raises(pytest.skip.Exception, match="no key"):
        await play("n", "d", agents)


@PLAYS
async def test_a_callback_may_fail_its_test(play):
    script = [scenario.proceed(on_step=lambda _: pytest.fail("too long"))]

    with pytest.raises(pytest.fail.Exception, match="too long"):
        await play("n", "d", [a_user(), an_agent()], script=script)


async def test_nothing_goes_on_of_a_run_that_ended_its_test():
    left = []

    async def begins_and_fails(state):
        left.append(asyncio.create_task(asyncio.Event().wait()))
        pytest.fail("enough")

    before = threading.active_count()
    with pytest.raises(pytest.fail.Exception):
        await scenario.run("n", "d", [a_user()], script=[begins_and_fails])
    for thread in threading.enumerate():
        if thread.name == "holodeck-scenario":
            thread.join(10)

    assert left[0].cancelled()
    assert threading.active_count() <= before


def test_a_test_that_ends_in_one_of_several_scenarios_ends():
    async def both():
        scripts = [lambda _: asyncio.Event().wait()], [lambda _: pytest.skip("not today")]
        runs = [scenario.run("n", "d", [a_user()], script=script) for script in scripts]
        await asyncio.gather(*runs)

    with pytest.raises(pytest.skip.Exception, match="not today"):
        asyncio.run(both())
