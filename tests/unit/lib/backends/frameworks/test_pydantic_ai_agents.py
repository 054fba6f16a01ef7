"""Agents of PydanticAI; the contract suite has what all frameworks share."""

from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import pydantic
import pytest
from openai import AsyncOpenAI
from pydantic_ai import Agent, DeferredToolRequests, RunContext
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

from fakes import FakeOpenAI
from holodeck.errors import BackendError, BackendInitError
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.stubs.case_stubs import CaseStubs
from holodeck.lib.support.stubs import in_place_of_tools
from holodeck.lib.test_runner.observe import refuse_last_call
from holodeck.models.cases.stubs import StandIns
from support.frameworks import lookup_order, script
from support.server import PATIENT_S


@pytest.fixture
async def make():
    """A function that makes an agent on a fake server, which is its `server`."""
    with FakeOpenAI(script) as server:
        connection = AsyncOpenAI(
            base_url=server.url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S
        )
        model = OpenAIChatModel("fake", provider=OpenAIProvider(openai_client=connection))

        def agent(*tools, **options):
            return Agent(model, tools=tools or [lookup_order], **options)

        agent.server = server
        yield agent
        await connection.close()


@asynccontextmanager
async def backend_of(agent):
    backend = CallableBackend(agent)
    await backend.initialize()
    yield backend
    await backend.teardown()


@pytest.mark.parametrize("call", [("erase", {}), ("lookup_order", {})], ids=["unknown", "args"])
async def test_a_model_that_repeats_an_invalid_call_ends_the_turn_by_it(make, call):
    make.server.reply(tool_calls=[call]).reply(tool_calls=[call])

    async with backend_of(make(retries=1)) as backend:
        with pytest.raises(BackendError) as raised:
            await backend.invoke_once("hello")

    assert refuse_last_call(raised.value.seen, str(raised.value))


class Order(pydantic.BaseModel):
    id: int
    status: str


SHIPPED = {"id": 7, "status": "shipped"}


async def test_the_final_answer_through_an_output_tool_is_structured_and_no_tool_call(make):
    make.server.reply(tool_calls=[("lookup_order", {"order_id": "7"})])
    make.server.reply(tool_calls=[("final_result", {"id": "seven"})])
    make.server.reply(tool_calls=[("final_result", SHIPPED)])

    async with backend_of(make(output_type=Order, retries=2)) as backend:
        result = await backend.invoke_once("Where is order 7?")

    assert result.structured_output == SHIPPED
    assert [call["name"] for call in result.tool_calls] == ["lookup_order"]
    assert [one["name"] for one in result.tool_results] == ["lookup_order"]
    assert result.token_usage.prompt_tokens == 30


async def test_a_structured_answer_is_streamed_as_json(make):
    make.server.reply(tool_calls=[("final_result", SHIPPED)])

    async with backend_of(make(output_type=Order)) as backend:
        session = await backend.create_session()
        pieces = [piece async for piece in session.send_streaming("order?")]

    assert pieces == ['{"id":7,"status":"shipped"}']


@dataclass
class Deps:
    greeting: str


async def test_an_agent_that_needs_deps_says_how_to_give_them(make):
    agent = make(deps_type=Deps)

    with pytest.raises(BackendInitError, match=r"^the agent needs deps, a Deps; name functools\."):
        await CallableBackend(agent).initialize()


@pytest.mark.parametrize("is_factory", [False, True])
async def test_deps_are_chosen_with_partial(make, is_factory):
    def greet(context: RunContext[Deps]) -> str:
        return context.deps.greeting

    make.server.reply(tool_calls=[("greet", {})]).reply("done")
    run = partial(make(greet, deps_type=Deps).run, deps=Deps("good day"))

    async with backend_of((lambda: run) if is_factory else run) as backend:
        result = await backend.invoke_once("hello")

    assert [one["result"] for one in result.tool_results] == ["good day"]


@pytest.mark.parametrize("name", ["message_history", "event_stream_handler"])
async def test_arguments_that_holodeck_sets_are_refused(make, name):
    with pytest.raises(BackendInitError, match=f"^holodeck sets '{name}' of run"):
        await CallableBackend(partial(make().run, **{name: None})).initialize()


async def test_a_tool_that_raises_ends_the_turn_and_its_call_is_reported(make):
    async with backend_of(make()) as backend:
        with pytest.raises(BackendError, match="ValueError: no such order") as raised:
            await backend.invoke_once("Where is order lost?")

    [call] = raised.value.seen.tool_calls
    assert (call["name"], call["arguments"]) == ("lookup_order", {"order_id": "lost"})


async def test_arguments_that_do_not_fit_are_an_error_of_the_tool(make):
    make.server.reply(tool_calls=[("lookup_order", {"order": 7})]).reply("done")

    async with backend_of(make()) as backend:
        result = await backend.invoke_once("hello")

    [tool_result] = result.tool_results
    assert tool_result["is_error"] is True


async def test_a_tool_that_needs_approval_waits_for_it(make):
    agent = make(output_type=[str, DeferredToolRequests])
    agent.tool_plain(requires_approval=True)(cancel_order)
    make.server.otherwise(tool_calls=[("cancel_order", {"order_id": "7"})])

    async with backend_of(agent) as backend:
        result = await backend.invoke_once("cancel it")

    [pending] = result.pending_approvals
    assert (pending["name"], pending["arguments"]) == ("cancel_order", {"order_id": "7"})


def cancel_order(order_id: str) -> str:
    return f"order {order_id} is cancelled"


async def test_a_tool_that_runs_elsewhere_is_an_error(make):
    outside = ExternalToolset([ToolDefinition(name="audit", parameters_json_schema={})])
    agent = make(output_type=[str, DeferredToolRequests], toolsets=[outside])
    make.server.otherwise(tool_calls=[("audit", {})])

    async with backend_of(agent) as backend:
        with pytest.raises(BackendError, match=r"^the agent waits for the results of audit"):
            await backend.invoke_once("audit it")


async def test_the_system_prompt_precedes_earlier_messages(make):
    context = [
        {"role": "user", "content": "my name is Ada"},
        {"role": "assistant", "content": "Hello Ada"},
    ]

    async with backend_of(make(system_prompt="Be brief.")) as backend:
        await backend.invoke_once("who am I", context)

    sent = [(one["role"], one["content"]) for one in make.server.requests[0].messages]
    assert sent == [
        ("system", "Be brief."),
        ("user", "my name is Ada"),
        ("assistant", "Hello Ada"),
        ("user", "who am I"),
    ]


async def test_earlier_messages_with_tool_calls_reach_the_model(make):
    call = {"name": "lookup_order", "arguments": '{"order_id": "9"}'}
    context = [
        {"role": "user", "content": "Where is it?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "a", "type": "function", "function": call}],
        },
        {"role": "tool", "content": "order 9 is lost", "tool_call_id": "a"},
        {"role": "assistant", "content": "It is lost."},
    ]

    async with backend_of(make()) as backend:
        result = await backend.invoke_once("oh", context)

    sent = make.server.requests[0].messages
    assert [one["role"] for one in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert sent[1]["tool_calls"][0]["function"]["name"] == "lookup_order"
    assert (sent[2]["tool_call_id"], sent[2]["content"]) == ("a", "order 9 is lost")
    assert result.tool_calls == []


async def test_an_agent_without_a_name_gets_none(make):
    agent = make()

    async with backend_of(agent) as backend:
        result = await backend.invoke_once("hello")

    assert (result.agents, agent.name) == (None, None)


async def test_an_agent_around_another_is_read_like_it(make):
    make.server.reply(tool_calls=[("lookup_order", {"order_id": "7"})])
    make.server.reply(tool_calls=[("final_result", SHIPPED)])

    inner = make(output_type=Order, name="support")

    async with backend_of(WrapperAgent(WrapperAgent(inner))) as backend:
        result = await backend.invoke_once("order?")

    assert [call["name"] for call in result.tool_calls] == ["lookup_order"]
    assert (result.structured_output, result.agents) == (SHIPPED, ["support"])


async def test_tools_that_only_a_run_can_list_are_unknown(make):
    outside = ExternalToolset([ToolDefinition(name="audit", parameters_json_schema={})])

    async with backend_of(make(toolsets=[outside])) as backend:
        result = await backend.invoke_once("hello")

    assert result.tools is None


async def test_the_users_capabilities_of_a_run_stay_where_there_are_stubs(make):
    seen = []

    class Watching(AbstractCapability):
        async def wrap_tool_execute(self, ctx, *, call, tool_def, args, handler):
            seen.append(call.tool_name)
            return await handler(args)

    agent = partial(make().run, capabilities=[Watching()])
    with in_place_of_tools(CaseStubs(StandIns())):
        async with backend_of(agent) as backend:
            result = await backend.invoke_once("Where is order 7?")

    assert (seen, result.response) == (["lookup_order"], "OK: order 7 is shipped")
