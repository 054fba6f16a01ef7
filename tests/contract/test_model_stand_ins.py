"""A scripted model and faults of the model on every way to an agent whose requests pass holodeck.

The agents are those of `support.ways`: asked for `order 7`, each calls `lookup_order` once, and
says what it got.
"""

from functools import partial

import pytest

from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.scheduling.stop_policy import MAX_REFUSALS
from holodeck.models.agent import IN_PYTHON, Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.results.outcome import Outcome
from support.frameworks import TOOL
from support.ways import built_in, tapped_process, tapped_python, tapped_service

WAYS = {backend: partial(built_in, backend) for backend in ("chat", "semantic_kernel")} | {
    way.__name__: partial(way, uses_tap=True)
    for way in (tapped_service, tapped_python, tapped_process)
}
LOOKUP, SENT = {"tool_calls": [{TOOL: {"order_id": "8"}}]}, {"text": "It has been sent."}
ONCE = ExecutionConfig(max_retries=0, llm_timeout=600)


@pytest.fixture(params=WAYS.values(), ids=WAYS)
async def backend(request):
    async with request.param() as backend:
        yield backend
        await backend.teardown()


async def run(backend, *cases, **settings):
    """The results of cases with the same settings besides their own."""
    written = [{"input": "Where is order 7?", **settings, **case} for case in cases or ({},)]
    agent = Agent(name="agent", backend=IN_PYTHON, test_cases=written, execution=ONCE)
    executor = TestExecutor("agent.yaml", agent_config=agent, backend=backend)
    return (await executor.execute_tests()).results


def handled(result):
    """What became of the requests, each with its reply and its faults."""
    return [(request.reply, request.faults) for request in result.handled_requests]


async def test_replies_take_the_place_of_the_model(backend):
    [result] = await run(backend, model_replies=[LOOKUP, SENT], expected_tools=[TOOL])

    assert result.outcome is Outcome.PASSED, result.errors
    assert result.agent_response == "It has been sent."
    assert [call.args for call in result.tool_invocations] == [{"order_id": "8"}]
    assert handled(result) == [(0, []), (1, [])]
    assert result.token_usage is None


FAULTS = {
    "delay": ({"call": 2, "delay": 0.01}, "OK: "),
    "refusal": ({"call": 1, "refusal": "I cannot help with that."}, "I cannot help with that."),
    "cut_off": ({"call": 2, "cut_off": True}, "OK: "),
    "status": ({"call": 2, "status": 400}, None),
}
"""Kind → the fault, and how the response begins; None if the agent decides that."""


@pytest.mark.parametrize(("fault", "begin"), FAULTS.values(), ids=FAULTS)
async def test_each_fault_is_delivered_and_reported(backend, fault, begin):
    [kind] = fault.keys() - {"call"}
    [whole] = await run(backend)
    [result] = await run(backend, model_faults=[fault])

    assert [faults for _, faults in handled(result)][fault["call"] - 1] == [kind]
    assert not [check for check in result.tool_checks if check.error]
    if begin is not None:  # what a status leads to is up to the agent
        assert result.agent_response.startswith(begin)
    if kind == "cut_off":
        assert result.agent_response == whole.agent_response[: len(whole.agent_response) // 2]


@pytest.mark.parametrize("kind", FAULTS)
async def test_a_fault_that_is_not_reached_is_an_error_of_the_case(backend, kind):
    fault = {**FAULTS[kind][0], "call": 3}
    [result] = await run(backend, model_faults=[fault], expected_tools=[TOOL])

    assert result.outcome is Outcome.METRIC_ERROR
    assert [check.error for check in result.tool_checks if check.error] == [
        f"the agent asked its model 2 times; the fault {kind!r} at call 3 was not delivered"
    ]


async def test_a_request_without_a_reply_is_an_error_that_shows_it(backend):
    [result] = await run(backend, model_replies=[LOOKUP])

    assert result.outcome is Outcome.AGENT_ERROR
    said = [*result.errors, *(check.error for check in result.tool_checks if check.error)]
    assert any("the scripted model has no reply" in text and "call_1" in text for text in said)
    assert len(result.attempts) <= 1, "the agent was asked again"


async def test_a_reply_that_is_not_asked_for_is_an_error_of_the_case(backend):
    [result] = await run(backend, model_replies=[SENT, SENT], expected_tools=[])

    assert result.outcome is Outcome.METRIC_ERROR


async def test_cases_that_run_at_once_keep_their_replies_apart(backend):
    texts = [f"answer {number}" for number in range(50)]
    cases = [
        {"name": text, "model_replies": [LOOKUP, {"text": text}], "expected_tools": [TOOL]}
        for text in texts
    ]

    results = await run(backend, *cases)

    assert [result.agent_response for result in results] == texts
    assert {result.outcome for result in results} == {Outcome.PASSED}


async def test_refusals_that_cases_stage_do_not_stop_the_run():
    refused = {"model_faults": [{"call": 1, "status": 401}], "expected_tools": []}
    cases = [{"name": f"refused {number}", **refused} for number in range(MAX_REFUSALS + 1)]
    answered = {"name": "answered", "model_replies": [SENT], "expected_tools": []}

    async with WAYS["chat"]() as backend:
        *failed, last = await run(backend, *cases, answered)

    assert {result.outcome for result in failed} == {Outcome.AGENT_ERROR}
    assert last.outcome is Outcome.PASSED
