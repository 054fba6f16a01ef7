"""What the adapter of every framework with approvals keeps to, on real agents of the framework.

Each agent asks for an approval of every call of its tool.
"""

import pytest

from fakes import FakeOpenAI
from holodeck.lib.backends.base import capabilities_of
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.support.approvals import ApprovalDecisions
from support.frameworks import approval_rows, script

ROWS = approval_rows()


@pytest.fixture(params=ROWS, ids=[row.__name__ for row in ROWS])
async def session(request):
    """A conversation with an agent, with its model as `server`."""
    with FakeOpenAI(script) as server:
        subject = request.param(server)
        backend = CallableBackend(subject.agent)
        session = await backend.create_session()
        session.server, session.tool = server, subject.tool
        assert capabilities_of(backend).answers_approvals
        yield session
        await session.close()
        await backend.teardown()
        if subject.close is not None:
            await subject.close()


def results_by_call(turn):
    """The results of a turn in the order of its calls."""
    by_id = {result["call_id"]: result for result in turn.tool_results}
    assert len(by_id) == len(turn.tool_results)
    return [by_id.get(call["call_id"]) for call in turn.tool_calls]


async def test_a_pending_approval_has_the_name_and_the_arguments_of_the_call(session):
    result = await session.send("Where is order 7?")

    [pending] = result.pending_approvals
    [call] = result.tool_calls
    assert (pending["name"], pending["arguments"]) == (session.tool, {"order_id": "7"})
    assert pending["call_id"] == call["call_id"]
    assert (result.response, result.tool_results) == ("", [])


async def test_an_approved_call_runs_and_the_agent_answers(session):
    first = await session.send("Where is order 7?")

    rest = await session.send(ApprovalDecisions([True]))

    turn = first.followed_by(rest)
    [result] = results_by_call(turn)
    assert (turn.response, turn.pending_approvals) == ("OK: order 7 is shipped", [])
    assert result["result"] == "order 7 is shipped"
    assert not result.get("blocked")
    assert turn.tool_calls_problem is None
    assert turn.token_usage.total_tokens == 15 * len(session.server.requests)


async def test_a_rejected_call_is_blocked(session):
    first = await session.send("Where is order 7?")

    rest = await session.send(ApprovalDecisions([False]))

    turn = first.followed_by(rest)
    [result] = results_by_call(turn)
    assert turn.response.startswith("OK: ")
    assert "shipped" not in turn.response
    assert result["blocked"]


async def test_each_of_several_calls_has_its_own_decision(session):
    turn, orders = await session.send("Where are order 7 and order 8?"), []
    while turn.pending_approvals:  # some frameworks ask for one after the other
        pending = [call["arguments"]["order_id"] for call in turn.pending_approvals]
        orders += pending
        decisions = ApprovalDecisions(order == "8" for order in pending)
        turn = turn.followed_by(await session.send(decisions))

    results = results_by_call(turn)
    assert sorted(orders) == ["7", "8"]
    assert [call["arguments"]["order_id"] for call in turn.tool_calls] == ["7", "8"]
    assert [bool(result.get("blocked")) for result in results] == [True, False]
    assert results[1]["result"] == "order 8 is shipped"
    assert turn.token_usage.total_tokens == 15 * len(session.server.requests)


async def test_the_conversation_goes_on_after_an_approval(session):
    await session.send("Where is order 7?")
    await session.send(ApprovalDecisions([True]))

    result = await session.send("hello")

    assert (result.response, result.tool_calls) == ("OK: hello", [])
    assert [message["role"] for message in session.server.requests[-1].messages][-4:] == [
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
