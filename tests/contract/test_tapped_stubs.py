"""Stubs of agents behind the tap: their tools run, and their models see what stubs make of it.

The agents are those of `support.ways`: asked for `order 7`, each calls `lookup_order` once, and
says what it got.
"""

from functools import partial

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.models.agent import IN_PYTHON, Agent
from holodeck.models.results.outcome import Outcome
from support.frameworks import TOOL
from support.ways import tapped_process, tapped_service

WAYS = {way.__name__: partial(way, uses_tap=True) for way in (tapped_service, tapped_process)}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
async def backend(request):
    async with request.param() as backend:
        yield backend
        await backend.teardown()


async def run(backend, *stubs, question="Where is order 7?", **case):
    """The result of a case with these stubs of the tool, whose own result is `shipped`."""
    written = {
        "stubs": {TOOL: [*stubs]},
        **({} if "turns" in case else {"input": question}),
        **case,
    }
    agent = Agent(name="agent", backend=IN_PYTHON, test_cases=[written])
    executor = TestExecutor("agent.yaml", agent_config=agent, backend=backend)
    [result] = (await executor.execute_tests()).results
    return result


KINDS = {
    "returns": ({"returns": "lost"}, "OK: lost"),
    "returns data": ({"returns": {"status": "lost"}}, 'OK: {"status": "lost"}'),
    "raises": ({"raises": "no connection"}, "OK: Error: no connection"),
    "timeout": ({"timeout": 0.01}, "OK: Error: no result within 0.01 s"),
    "delay": ({"delay": 0.01}, "OK: shipped"),
    "empty": ({"empty": True}, "OK: "),
    "malformed": ({"malformed": True}, 'OK: {"result": "shipped"'),
    "truncated": ({"truncated": 4}, "OK: ship"),
}
"""Kind → the stub, and the response of the agent, which is what its model was told."""


@pytest.mark.parametrize(("stub", "response"), KINDS.values(), ids=KINDS)
async def test_the_model_is_told_what_the_stub_says_and_the_report_that_the_tool_ran(
    backend, stub, response
):
    result = await run(backend, stub, expected_tools=[TOOL])

    [call] = result.tool_invocations
    assert result.outcome is Outcome.PASSED, result.tool_checks
    assert result.agent_response == response
    assert (call.stub.kind, call.stub.tool_ran) == (next(iter(stub)), True)
    assert f"OK: {call.result}" == response


UNDELIVERED = {
    "never called": ({"raises": "x"}, "hello", "never"),
    "call not reached": ({"call": 2, "raises": "x"}, "order 7", "called once"),
    "other arguments": ({"when": {"order_id": "8"}, "returns": 1}, "order 7", "needs"),
    "truncates short text": ({"truncated": 300}, "order 7", "changes nothing of 'shipped'"),
}


@pytest.mark.parametrize(("stub", "question", "reason"), UNDELIVERED.values(), ids=UNDELIVERED)
async def test_what_is_not_delivered_is_an_error_of_the_case(backend, stub, question, reason):
    result = await run(backend, stub, question=question, forbidden_tools=["erase"])

    [check] = [check for check in result.tool_checks if check.error]
    assert result.outcome is Outcome.METRIC_ERROR
    assert reason in check.error


async def test_each_call_gets_its_stub_and_later_requests_repeat_what_it_got(backend):
    stubs = [{"when": {"order_id": "7"}, "returns": "lost"}, {"call": 2, "returns": "found"}]
    calls = [{"tool_calls": [{TOOL: {"order_id": order}}]} for order in "765"]

    result = await run(backend, *stubs, model_replies=[*calls, {"text": "Done."}])

    assert [call.result for call in result.tool_invocations] == ["lost", "found", "shipped"]
    assert [call.kind for call in result.stubbed_calls] == ["returns", "returns", None]


async def test_tools_behind_the_tap_are_not_sealed(backend):
    with pytest.raises(ConfigError, match="only replaces their results"):
        await run(backend, {"returns": "lost"}, tools_in_test="sealed")
