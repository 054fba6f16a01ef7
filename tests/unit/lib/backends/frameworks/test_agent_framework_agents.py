"""Agents of Microsoft Agent Framework; the contract suite has what all frameworks share."""

from contextlib import asynccontextmanager
from functools import partial

import pydantic
import pytest
from agent_framework import (
    Agent,
    AgentLoopMiddleware,
    AgentResponse,
    BaseAgent,
    ContextProvider,
    Message,
    MiddlewareTermination,
    ToolApprovalMiddleware,
    agent_middleware,
    chat_middleware,
    function_middleware,
    tool,
)
from agent_framework_openai import OpenAIChatCompletionClient
from openai import AsyncOpenAI

from fakes import FakeOpenAI
from holodeck.errors import BackendError, BackendInitError
from holodeck.lib.backends.python.backend import CallableBackend
from support.frameworks import lookup_order, script
from support.server import PATIENT_S


@pytest.fixture
async def make():
    """A function that makes an agent on a fake server, which is its `server`."""
    with FakeOpenAI(script) as server:
        connection = AsyncOpenAI(
            base_url=server.url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S
        )
        client = OpenAIChatCompletionClient(model="fake", async_client=connection)

        def agent(*tools, **options):
            return Agent(client, "Be brief.", tools=list(tools or [lookup_order]), **options)

        agent.server = server
        yield agent
        await connection.close()


@asynccontextmanager
async def backend_of(agent):
    backend = CallableBackend(agent)
    await backend.initialize()
    yield backend
    await backend.teardown()


class Order(pydantic.BaseModel):
    id: int
    status: str


async def test_arguments_of_each_run_can_be_chosen(make):
    run = partial(make().run, options={"temperature": 0.25})

    async with backend_of(run) as backend:
        await backend.invoke_once("hello")

    assert make.server.requests[0].body["temperature"] == 0.25


@pytest.mark.parametrize("name", ["messages", "stream", "middleware"])
async def test_arguments_that_holodeck_sets_are_refused(make, name):
    with pytest.raises(BackendInitError, match=f"^holodeck sets '{name}' of run"):
        await CallableBackend(partial(make().run, **{name: None})).initialize()


async def test_an_answer_in_a_response_format_is_structured(make):
    make.server.when("order", content='{"id": 7, "status": "shipped"}')
    agent = make(default_options={"response_format": Order})

    async with backend_of(agent) as backend:
        result = await backend.invoke_once("order")

    assert result.structured_output == {"id": 7, "status": "shipped"}
    assert result.response == '{"id": 7, "status": "shipped"}'


async def test_an_answer_that_misses_its_response_format_is_text(make):
    make.server.when("order", content="no idea")

    async with backend_of(make(default_options={"response_format": Order})) as backend:
        result = await backend.invoke_once("order")

    assert (result.response, result.structured_output) == ("no idea", None)


async def test_the_answer_is_what_follows_the_last_tool_call(make):
    make.server.reply("Let me see.", tool_calls=[("lookup_order", {"order_id": "7"})])
    make.server.reply("It is shipped.")

    async with backend_of(make()) as backend:
        result = await backend.invoke_once("order?")

    assert result.response == "It is shipped."
    assert result.agents is None  # the agent has no name


async def test_a_call_of_an_unknown_tool_has_an_error_as_its_result(make):
    make.server.reply(tool_calls=[("cancel_order", {"order_id": "7"})]).reply("done")

    async with backend_of(make()) as backend:
        result = await backend.invoke_once("hello")

    [call], [tool_result] = result.tool_calls, result.tool_results
    assert call["name"] == tool_result["name"] == "cancel_order"
    assert tool_result["is_error"] is True
    assert "cancel_order" in tool_result["result"]


async def test_a_tool_that_needs_approval_waits_for_it(make):
    @tool(approval_mode="always_require")
    def cancel_order(order_id: str) -> str:
        return f"order {order_id} is cancelled"

    make.server.otherwise(tool_calls=[("cancel_order", {"order_id": "7"})])

    async with backend_of(make(cancel_order)) as backend:
        result = await backend.invoke_once("cancel it")

    [pending] = result.pending_approvals
    assert (pending["name"], pending["arguments"]) == ("cancel_order", {"order_id": "7"})


@pytest.mark.parametrize(
    "write",
    [lambda *pair: pair, lambda agent, session: partial(agent.run, session=session)],
    ids=["pair", "partial"],
)
async def test_each_conversation_begins_with_a_copy_of_the_session_of_the_user(make, write):
    agent = make()
    session = agent.create_session()
    await agent.run("my name is Ada", session=session)

    async with backend_of(write(agent, session)) as backend:
        for _ in range(2):
            await backend.invoke_once("hello")
    await agent.run("bye", session=session)

    said = [
        [message["content"] for message in request.messages if message["role"] == "user"]
        for request in make.server.requests[1:]
    ]
    assert said == [["my name is Ada", "hello"]] * 2 + [["my name is Ada", "bye"]]


@pytest.mark.parametrize(
    ("result", "response"), [("it is on its way", "it is on its way"), (None, "")]
)
async def test_what_middleware_ends_a_run_with_is_the_answer(make, result, response):
    @function_middleware
    async def end(context, call_next):
        raise MiddlewareTermination(result=result)

    async with backend_of(make(middleware=[end])) as backend:
        answer = await backend.invoke_once("Where is order 7?")

    assert answer.response == response
    assert answer.ends_with_calls
    assert [call["name"] for call in answer.tool_calls] == ["lookup_order"]


async def test_earlier_messages_with_tool_calls_reach_the_model(make):
    call = {"name": "lookup_order", "arguments": '{"order_id": "9"}'}
    context = [
        {"role": "system", "content": "It is Monday."},
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

    sent = [(one["role"], one.get("content")) for one in make.server.requests[0].messages]
    assert ("tool", "order 9 is lost") in sent
    assert sent[-2:] == [("assistant", "It is lost."), ("user", "oh")]
    assert make.server.requests[0].messages[-3]["tool_call_id"] == "a"
    assert result.tool_calls == []


async def test_calls_that_middleware_of_the_user_answers_are_seen(make):
    @function_middleware
    async def answer(context, call_next):
        context.result = "from the cache"

    async with backend_of(make(middleware=[answer])) as backend:
        result = await backend.invoke_once("Where is order 7?")

    [returned] = result.tool_results
    assert (returned["result"], returned["blocked"]) == ("from the cache", True)


async def test_calls_that_middleware_of_the_user_lets_through_are_not_blocked(make):
    @function_middleware
    async def log(context, call_next):
        await call_next()

    async with backend_of(make(middleware=[log])) as backend:
        result = await backend.invoke_once("Where is order 7?")

    [returned] = result.tool_results
    assert "blocked" not in returned


async def test_a_request_that_middleware_of_the_user_makes_again_counts_twice(make):
    @chat_middleware
    async def twice(context, call_next):
        await call_next()
        await call_next()

    async with backend_of(make(middleware=[twice])) as backend:
        result = await backend.invoke_once("hello")

    assert len(make.server.requests) == 2
    assert result.token_usage.prompt_tokens == 20
    assert result.tool_calls == []


async def test_usage_that_one_request_of_several_lacks_makes_the_sum_unknown(make):
    make.server.reply(tool_calls=[("lookup_order", {"order_id": "7"})], usage=None).reply("done")

    async with backend_of(make()) as backend:
        result = await backend.invoke_once("order?")

    assert result.token_usage is None


class Memory(ContextProvider):
    """Counts the turns of a conversation in its session."""

    async def before_run(self, *, agent, session, context, state):
        context.extend_instructions(self.source_id, f"turn {state.get('turns', 0)}")
        state["turns"] = state.get("turns", 0) + 1


async def test_state_of_context_providers_is_that_of_the_conversation(make):
    async with backend_of(make(context_providers=[Memory("memory")])) as backend:
        ada, bob = await backend.create_session(), await backend.create_session()
        for session in (ada, ada, bob):
            await session.send("hello")
        with pytest.raises(BackendError, match="as told"):
            await ada.send("fail")
        result = await ada.send("hello")

    turns = [request.system.rpartition(" ")[2] for request in make.server.requests]
    assert turns == ["0", "1", "0", "2", "2"]
    assert result.tools is None  # a context provider may add some


class Remote(BaseAgent):
    """An agent whose model the framework does not call itself."""

    async def run(self, messages=None, *, stream=False, session=None, **options):
        return AgentResponse(messages=[Message("assistant", ["hello"])])


async def test_tool_calls_that_a_remote_agent_does_not_tell_are_unknown():
    async with backend_of(Remote(name="remote")) as backend:
        result = await backend.invoke_once("hello")

    assert (result.response, result.agents) == ("hello", ["remote"])
    assert (result.tool_calls, result.token_usage, result.tools) == (None, None, None)


def approving(make):
    """An agent whose tool needs an approval, which middleware gives."""
    careful = tool(lookup_order, approval_mode="always_require")
    middleware = ToolApprovalMiddleware(auto_approval_rules=[lambda _: True])
    return make(careful, name="support", middleware=[middleware])


def running_twice(make):
    @agent_middleware
    async def run_again(context, call_next):
        await call_next()
        await call_next()

    return make(name="support", middleware=[run_again])


def looping(make):
    runs = []

    def goes_on(**_):
        runs.append(1)
        return len(runs) < 2

    loop = AgentLoopMiddleware(goes_on, return_final_only=True)
    return make(name="support", middleware=[loop])


def with_provider(make):
    """An agent whose context provider runs another one before it."""
    expert = make(name="expert")

    class Provider(ContextProvider):
        async def before_run(self, **_):
            await expert.run("Where is order 7?")

    return make(
        tool(lambda: "no", name="nothing"), name="support", context_providers=[Provider("asks")]
    )


@pytest.mark.filterwarnings("ignore:.*AgentLoopMiddleware is experimental")
@pytest.mark.parametrize("build", [approving, running_twice, looping, with_provider])
async def test_what_middleware_and_providers_run_counts(make, build):
    message = "hello" if build is with_provider else "Where is order 7?"

    async with backend_of(build(make)) as backend:
        result = await backend.invoke_once(message)

    calls = [call["name"] for call in result.tool_calls]
    assert calls
    assert set(calls) == {"lookup_order"}
    requests = len(make.server.requests)
    assert result.token_usage.prompt_tokens == 10 * requests


async def test_what_middleware_runs_counts_inside_of_an_orchestration(make):
    from agent_framework_orchestrations import SequentialBuilder

    async with backend_of(SequentialBuilder(participants=[approving(make)])) as backend:
        result = await backend.invoke_once("Where is order 7?")

    assert [call["name"] for call in result.tool_calls] == ["lookup_order"]
    assert result.token_usage.prompt_tokens == 10 * len(make.server.requests)
