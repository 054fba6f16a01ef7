"""What is particular to agents of Semantic Kernel whose conversations a service keeps."""

import asyncio
import logging
from functools import partial
from types import SimpleNamespace

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.errors import BackendError, BackendInitError, BackendTimeoutError
from holodeck.lib.backends.callable_backend import CallableBackend
from holodeck.lib.backends.frameworks import adapt
from holodeck.lib.llm.limits import override_call_limit
from support.frameworks import script
from support.frameworks.semantic_kernel_assistants import (
    azure_assistant,
    azure_openai_assistant,
    openai_assistant,
)

KINDS = {
    "openai": openai_assistant,
    "azure openai": azure_openai_assistant,
    "azure ai": azure_assistant,
}
CODE = {"type": "code_interpreter"}
FILES = {"type": "file_search"}


@pytest.fixture
def server():
    with FakeOpenAI(script) as server:
        yield server


@pytest.fixture(params=KINDS.values(), ids=KINDS)
async def make(request, server):
    """Makes an agent from the fields of its definition."""
    closers = []

    def make(**definition):
        agent, close = request.param(server, **definition)
        closers.append(close)
        return agent

    yield make
    for close in closers:
        await close()


@pytest.fixture
def service(server):
    return server.assistants


async def test_every_conversation_has_a_thread_of_its_own_that_is_deleted(make, service):
    backend = CallableBackend(make())
    first, second = [await backend.create_session() for _ in range(2)]

    await first.send("hello")
    await second.send("hello")
    await first.send("and hello")
    alive = set(service.threads)
    await first.close()
    await second.close()
    await second.close()

    assert (len(service.created), alive, service.threads) == (2, set(service.created), {})


async def test_a_conversation_without_a_turn_needs_no_thread(make, service):
    session = await CallableBackend(make()).create_session([{"role": "user", "content": "hi"}])
    await session.close()

    assert service.created == []


@pytest.mark.parametrize("message", ["fail", "Where is order 7? then fail"])
async def test_the_thread_of_a_failed_turn_is_deleted(make, service, message):
    with pytest.raises(BackendError, match="as told"):
        await CallableBackend(make()).invoke_once(message)

    assert (len(service.created), service.threads) == (1, {})


@pytest.mark.parametrize("message", ["hang", "Where is order 7? then hang"])
async def test_the_run_of_a_turn_out_of_time_is_cancelled_and_its_thread_deleted(
    make, service, message
):
    backend = CallableBackend(make())
    with override_call_limit(1), pytest.raises(BackendTimeoutError):
        await backend.invoke_once(message)

    assert service.threads == {}
    assert any("/cancel" in line for line in service.log) is bool(service.created)


async def test_a_cancelled_case_leaves_no_run_and_no_thread(make, server, service):
    call = asyncio.create_task(CallableBackend(make()).invoke_once("hang"))
    await server.saw(1)

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert service.threads == {}
    assert any("/cancel" in line for line in service.log)


async def test_a_thread_that_was_created_while_its_case_was_cancelled_is_deleted(make, service):
    session = await CallableBackend(make()).create_session()
    with service.held("POST threads"):
        call = asyncio.create_task(session.send("hello"))
        await service.saw("POST threads")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    await session.close()

    assert (len(service.created), service.threads) == (1, {})


async def test_a_thread_that_cannot_be_created_is_an_error_that_says_why(make, service):
    session = await CallableBackend(make()).create_session()
    service.refuse("POST threads", 403)

    with pytest.raises(BackendError, match=r"403.*as told"):
        await session.send("hello")
    result = await session.send("hello again")
    await session.close()

    assert (result.response, service.threads) == ("OK: hello again", {})


async def test_a_thread_that_cannot_be_deleted_is_named(make, service, caplog):
    caplog.set_level(logging.WARNING, "holodeck")
    service.refuse("DELETE", 409)

    result = await CallableBackend(make()).invoke_once("hello")

    [identity] = service.created
    assert result.response == "OK: hello"
    [message] = [one.message for one in caplog.records if one.name.startswith("holodeck")]
    assert f"the thread {identity} was not deleted" in message
    assert "as told" in message


def works(request):
    """The model computes before and after it looks up an order."""
    calls = [
        ("code_interpreter", {"code": "6 * 7"}),
        ("OrderPlugin-lookup_order", {"order_id": "7"}),
        ("file_search", {}),
    ]
    done = len(request.tool_results)
    return Reply("It is 42.") if done == len(calls) else Reply(None, tool_calls=[calls[done]])


async def test_calls_of_the_services_own_tools_are_seen_in_order(make, server):
    server.when("hello", works)
    backend = CallableBackend(make(tools=[CODE, FILES]))

    result = await backend.invoke_once("hello")

    assert result.response == "It is 42."
    assert [one["name"] for one in result.tool_calls] == [
        "code_interpreter",
        "OrderPlugin-lookup_order",
        "file_search",
    ]
    code, order, files = result.tool_calls
    assert (code["arguments"], order["arguments"]) == ({"input": "6 * 7"}, {"order_id": "7"})
    assert "arguments" not in files
    assert {one["call_id"]: one["result"] for one in result.tool_results} == {
        code["call_id"]: "42",
        order["call_id"]: "order 7 is shipped",
    }
    assert result.token_usage.total_tokens == 4 * 15
    assert result.tools == ["OrderPlugin-lookup_order", "code_interpreter", "file_search"]


async def test_programs_are_no_part_of_a_streamed_response(make, server):
    server.when("hello", works)
    session = await CallableBackend(make(tools=[CODE, FILES])).create_session()

    pieces = [piece async for piece in session.send_streaming("hello")]
    await session.close()

    assert pieces == ["It is 42."]


async def test_a_streamed_turn_reports_what_another_one_does(make, server):
    session = await adapt(make(tools=[FILES])).open([])
    server.when("hello", Reply(None, tool_calls=[("file_search", {})]), times=1)

    pieces = [piece async for piece in session.send_streaming("Where is order 7?")]
    order = session.turn
    async for _ in session.send_streaming("hello"):
        pass
    await session.close()

    assert "".join(pieces) == order.response == "OK: order 7 is shipped"
    assert [one["result"] for one in order.tool_results] == ["order 7 is shipped"]
    assert order.usage == {"prompt_tokens": 20, "completion_tokens": 10}
    assert [one["name"] for one in session.turn.tool_calls] == ["file_search"]


async def test_a_streamed_turn_without_text_has_its_tool_calls(make, server):
    session = await adapt(make()).open([])
    call = ("OrderPlugin-lookup_order", {"order_id": "lost"})
    server.when(lambda request: not request.tool_results, Reply(None, tool_calls=[call]))
    server.when("order", Reply(""))

    pieces = [piece async for piece in session.send_streaming("Where is order lost?")]
    await session.close()

    assert pieces == []
    assert [one["arguments"] for one in session.turn.tool_calls] == ['{"order_id": "lost"}']
    assert session.turn.tool_results[0]["is_error"] is True


async def answer(session, message):
    return (await session.send(message)).response


async def streamed_answer(session, message):
    return "".join([piece async for piece in session.send_streaming(message)])


@pytest.mark.parametrize("ask", [answer, streamed_answer])
async def test_a_run_that_ends_early_is_no_response(make, server, ask):
    server.when("hello", Reply("OK: hel", finish_reason="incomplete"))
    session = await CallableBackend(make()).create_session()

    with pytest.raises(BackendError, match=r"(?i)incomplete.*max_completion_tokens"):
        await ask(session, "hello")
    response = await ask(session, "good bye")
    await session.close()

    assert response == "OK: good bye"
    assert "hel" not in str(server.requests[-1].messages[:-1])


async def test_a_turn_that_ends_before_the_services_calls_are_told_says_so(make):
    with pytest.raises(BackendError) as raised:
        await CallableBackend(make(tools=[FILES])).invoke_once("Where is order 7? then fail")

    seen = raised.value.seen
    assert [one["result"] for one in seen.tool_results] == ["order 7 is shipped"]
    assert "before the service told" in seen.tool_calls_problem


async def test_an_agent_without_a_name_has_none(make):
    result = await CallableBackend(make(name=None)).invoke_once("hello")

    assert result.agents is None


async def test_arguments_of_invoke_can_be_chosen(make, server):
    noticed = []

    async def notice(message):
        noticed.append(message.role.value)

    chosen = {"instructions_override": "Be long.", "on_intermediate_message": notice}
    backend = CallableBackend(partial(make().invoke, **chosen))

    result = await backend.invoke_once("Where is order 7?")

    assert (server.requests[0].system, noticed) == ("Be long.", ["assistant", "tool"])
    assert len(result.tool_calls) == 1


async def test_earlier_results_of_tools_are_told_as_text(make, server):
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    context = [
        {"role": "user", "content": "Where is order 7?"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "order 7 is shipped", "tool_call_id": "1"},
    ]

    await CallableBackend(make()).invoke_once("hello", context)

    assert [one["content"] for one in server.requests[0].messages[1:]] == [
        "Where is order 7?",
        "order 7 is shipped",
        "hello",
    ]


async def test_a_thread_takes_no_messages_of_a_system(make, service):
    context = [{"role": "system", "content": "Be rude."}]

    with pytest.raises(BackendError, match="a thread takes no message with the role 'system'"):
        await CallableBackend(make()).invoke_once("hello", context)

    assert service.threads == {}


async def test_an_azure_client_without_threads_is_refused():
    from semantic_kernel.agents import AzureAIAgent

    agent = AzureAIAgent.model_construct(client=SimpleNamespace(agents=object()))

    with pytest.raises(BackendInitError, match="install 'azure-ai-projects<2'"):
        await CallableBackend(agent).initialize()


async def test_a_member_of_an_orchestration_leaves_no_thread(make, service):
    from semantic_kernel.agents import SequentialOrchestration

    backend = CallableBackend(SequentialOrchestration(members=[make()]))
    session = await backend.create_session()

    result = await session.send("Where is order 7?")
    with pytest.raises(BackendError, match="as told"):
        await session.send("fail")
    await session.close()

    assert result.response == "OK: order 7 is shipped"
    assert [one["result"] for one in result.tool_results] == ["order 7 is shipped"]
    assert result.token_usage is None
    assert (len(service.created), service.threads) == (2, {})
