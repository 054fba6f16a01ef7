"""What is particular to agents of Semantic Kernel on the Responses API."""

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.errors import BackendError
from holodeck.lib.backends.python.backend import CallableBackend
from support.dialects import responses_document
from support.frameworks import AGENT, script
from support.frameworks.semantic_kernel import responses_agent

SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "order 7"},
}
REMOTE = {
    "id": "mcp_1",
    "type": "mcp_call",
    "name": "delete_order",
    "server_label": "shop",
    "arguments": '{"order_id": "7"}',
    "output": None,
    "error": "no such order",
}


@pytest.fixture
async def subject():
    with FakeOpenAI(script) as server:
        subject = responses_agent(server)
        subject.agent.tools = [{"type": "web_search"}]
        yield subject
        await subject.close()


def after(*items, reply):
    """Answers like the model, after calls of tools that the provider ran."""

    def answer(request):
        document = responses_document(request, reply)
        return Reply(json={**document, "output": [*items, *document["output"]]})

    return answer


async def test_calls_of_tools_that_the_provider_ran_are_seen_in_order(subject):
    order = Reply(None, tool_calls=[(subject.tool, {"order_id": "7"})])
    subject.server.when(
        lambda request: not request.tool_results, after(SEARCH, reply=order)
    ).otherwise(after(REMOTE, reply=Reply("done")))

    result = await CallableBackend(subject.agent).invoke_once("Where is order 7?")

    assert result.response == "done"
    assert [(one["name"], one["agent"]) for one in result.tool_calls] == [
        ("web_search", AGENT),
        (subject.tool, AGENT),
        ("delete_order", AGENT),
    ]
    search, _, remote = result.tool_calls
    assert search["arguments"]["action"]["query"] == "order 7"
    assert remote["arguments"] == {"order_id": "7"}
    found, failed = result.tool_results
    assert (found["result"], failed["result"]) == ("order 7 is shipped", "no such order")
    assert (failed["name"], failed["is_error"]) == ("delete_order", True)
    assert result.tools is None


async def test_a_turn_that_ends_before_the_providers_calls_are_told_says_so(subject):
    order = Reply(None, tool_calls=[(subject.tool, {"order_id": "7"})])
    subject.server.when(lambda request: not request.tool_results, order)
    subject.server.otherwise(Reply(status=400, content="as told"))

    with pytest.raises(BackendError, match="as told") as raised:
        await CallableBackend(subject.agent).invoke_once("Where is order 7?")

    seen = raised.value.seen
    assert [one["name"] for one in seen.tool_calls] == [subject.tool]
    assert "before the provider told" in seen.tool_calls_problem


async def test_a_member_whose_service_runs_tools_makes_calls_of_an_orchestration_unknown(subject):
    from semantic_kernel.agents import SequentialOrchestration

    orchestration = SequentialOrchestration(members=[subject.agent])

    result = await CallableBackend(orchestration).invoke_once("hello")

    assert result.response == "OK: hello"
    assert "those of web_search are not seen" in result.tool_calls_problem
    assert result.tools is None
