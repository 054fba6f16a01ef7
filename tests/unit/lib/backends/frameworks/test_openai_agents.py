"""Agents of the OpenAI Agents SDK, run by `Runner` against a server on loopback."""

import asyncio
from functools import partial

import agents
import pytest
from agents import Agent, RunConfig, RunHooks, Runner, function_tool
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from agents.models.openai_responses import OpenAIResponsesModel
from openai import AsyncOpenAI

from fakes import FakeOpenAI
from holodeck.errors import BackendInitError, BackendSessionError
from holodeck.lib.backends.frameworks import adapt
from holodeck.lib.backends.python.backend import CallableBackend
from support.server import PATIENT_S

MODELS = {"chat completions": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


@pytest.fixture
def server():
    with FakeOpenAI() as server:
        yield server


@pytest.fixture(params=list(MODELS))
async def model(request, server):
    client = AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=PATIENT_S)
    yield MODELS[request.param]("fake", client)
    await client.close()


@function_tool
def lookup_order(order_id: str) -> dict[str, str]:
    """Look an order up."""
    return {"order": order_id, "status": "late"}


@function_tool
def cancel_order(order_id: str) -> str:
    """Cancel an order."""
    raise ValueError(f"order {order_id} has left")


def conversation(request):
    """Return what a request tells the model, but for the instructions."""
    return [message for message in request.messages if message["role"] != "system"]


def support(model, **fields):
    return Agent(name="support", model=model, instructions="Be brief.", **fields)


async def test_it_reads_tool_calls_with_results_and_usage(server, model):
    server.reply(tool_calls=[("lookup_order", {"order_id": "7"}, "c1")]).reply("It is late.")
    backend = CallableBackend(support(model, tools=[lookup_order]))

    result = await backend.invoke_once("Where is 7?")

    assert result.response == "It is late."
    assert result.tool_calls == [
        {
            "name": "lookup_order",
            "arguments": {"order_id": "7"},
            "call_id": "c1",
            "agent": "support",
        }
    ]
    assert result.tool_results == [
        {"name": "lookup_order", "call_id": "c1", "result": {"order": "7", "status": "late"}}
    ]
    assert (result.token_usage.prompt_tokens, result.token_usage.completion_tokens) == (20, 10)
    assert (result.agents, result.tools) == (["support"], ["lookup_order"])
    assert server.requests[0].system == "Be brief."


async def test_the_failure_of_a_tool_is_an_error(server, model):
    server.reply(tool_calls=[("cancel_order", {"order_id": "7"}, "c1")]).reply("Too late.")
    backend = CallableBackend(support(model, tools=[cancel_order]))

    [result] = (await backend.invoke_once("Cancel 7")).tool_results

    assert (result["name"], result["is_error"]) == ("cancel_order", True)
    assert "error occurred" in result["result"]


async def test_the_users_formatter_of_tool_errors_is_called(server, model):
    server.reply(tool_calls=[("cancel_order", {"order_id": "7"}, "c1")]).reply("Too late.")
    config = RunConfig(tracing_disabled=True, tool_error_formatter=lambda _: "no " * 3)
    backend = CallableBackend(
        partial(Runner.run, support(model, tools=[cancel_order]), run_config=config)
    )

    [result] = (await backend.invoke_once("Cancel 7")).tool_results

    assert (result["result"], result["is_error"]) == ("no no no ", True)


async def test_the_failure_of_an_agent_that_is_a_tool_is_an_error(server, model):
    broken = Agent(name="broken", model=model, tools=[cancel_order])
    tool = broken.as_tool("ask_broken", "Ask.")
    server.when("deep", status=400, content="broken")
    server.reply(tool_calls=[("ask_broken", {"input": "deep"}, "c1")]).reply("It is broken.")
    backend = CallableBackend(support(model, tools=[tool]))

    [result] = (await backend.invoke_once("Ask it")).tool_results

    assert result["is_error"]


async def test_the_usage_of_an_agent_that_is_a_tool_counts(server, model):
    tool = Agent(name="expert", model=model).as_tool("ask_expert", "Ask.")
    server.when("deep", "42")
    server.reply(tool_calls=[("ask_expert", {"input": "deep"}, "c1")]).reply("It is 42.")
    backend = CallableBackend(support(model, tools=[tool]))

    result = await backend.invoke_once("Ask it")

    assert result.token_usage.prompt_tokens == 30
    assert [one["result"] for one in result.tool_results] == ["42"]


async def test_usage_that_the_provider_does_not_report_is_unknown(server, model):
    server.reply(tool_calls=[("lookup_order", {"order_id": "7"})], usage=None).reply("Late.")
    backend = CallableBackend(support(model, tools=[lookup_order]))

    assert (await backend.invoke_once("Where is 7?")).token_usage is None


def triage(model):
    billing = Agent(name="billing", model=model, tools=[lookup_order])
    return Agent(name="triage", model=model, handoffs=[billing])


async def test_the_agents_that_spoke_are_known_and_the_last_one_gets_the_next_message(
    server, model
):
    server.reply(tool_calls=[("transfer_to_billing", {}, "h1")])
    server.reply(tool_calls=[("lookup_order", {"order_id": "7"}, "c1")]).reply("It is late.")
    server.reply("You are welcome.")
    session = await CallableBackend(triage(model)).create_session()

    first, second = await session.send("Where is 7?"), await session.send("Thanks")

    assert first.agents == ["triage", "billing"]
    assert [(c["name"], c["agent"]) for c in first.tool_calls] == [
        ("transfer_to_billing", "triage"),
        ("lookup_order", "billing"),
    ]
    assert [one["call_id"] for one in first.tool_results] == ["h1", "c1"]
    assert first.tools == ["transfer_to_billing", "lookup_order"]
    assert (second.agents, second.tool_calls) == (["billing"], [])
    assert server.requests[-1].tool_results[-1].find("late") > 0


async def test_each_conversation_begins_with_the_first_agent(server, model):
    server.reply(tool_calls=[("transfer_to_billing", {})]).otherwise("Hello.")
    backend = CallableBackend(triage(model))

    seen = [(await backend.invoke_once("Hello")).agents for _ in range(2)]

    assert seen == [["triage", "billing"], ["triage"]]


async def test_too_many_turns_are_an_error_with_what_was_seen(server, model):
    server.otherwise(tool_calls=[("lookup_order", {"order_id": "7"})])
    agent = support(model, tools=[lookup_order])
    backend = CallableBackend(partial(Runner.run, agent, max_turns=2))

    with pytest.raises(BackendSessionError, match="MaxTurnsExceeded") as caught:
        await backend.invoke_once("Where is 7?")

    assert [call["name"] for call in caught.value.seen.tool_calls] == ["lookup_order"] * 2
    assert len(caught.value.seen.tool_results) == 2
    assert caught.value.seen.token_usage.prompt_tokens == 20


async def test_a_failed_request_is_an_error_with_what_was_seen(server, model):
    server.reply(tool_calls=[("lookup_order", {"order_id": "7"})])
    server.reply(status=400, content="as told")
    session = await CallableBackend(support(model, tools=[lookup_order])).create_session()

    with pytest.raises(BackendSessionError, match="as told") as caught:
        await session.send("Where is 7?")

    assert len(caught.value.seen.tool_results) == 1
    server.reply("Hello.")
    assert (await session.send("Hello")).response == "Hello."
    assert [m["content"] for m in conversation(server.requests[-1])] == ["Hello"]


async def test_a_guardrail_that_stops_a_run_is_named(server, model):
    @agents.output_guardrail
    def no_prices(context, agent, output):
        return agents.GuardrailFunctionOutput("it names a price", tripwire_triggered=True)

    server.reply(tool_calls=[("lookup_order", {"order_id": "7"})]).reply("It costs 9.")
    agent = support(model, tools=[lookup_order], output_guardrails=[no_prices])

    with pytest.raises(BackendSessionError, match=r"'no_prices'.*it names a price") as caught:
        await CallableBackend(agent).invoke_once("Where is 7?")

    assert [call["name"] for call in caught.value.seen.tool_calls] == ["lookup_order"]


async def test_a_refusal_that_ends_the_run_is_the_result_of_its_call(server, model):
    """No hook tells of it, and no further request contains it."""

    @agents.tool_input_guardrail
    def nobody(data):
        return agents.ToolGuardrailFunctionOutput.reject_content("not for you")

    secret = function_tool(lambda: "4711", name_override="secret", tool_input_guardrails=[nobody])
    server.reply(tool_calls=[("secret", {})])
    agent = support(model, tools=[secret], tool_use_behavior="stop_on_first_tool")

    result = await CallableBackend(agent).invoke_once("Tell me")

    assert [call["name"] for call in result.tool_calls] == ["secret"]
    assert [row["result"] for row in result.tool_results] == ["not for you"]


async def test_a_call_that_needs_approval_waits_for_it(server, model):
    risky = function_tool(lambda: "done", name_override="risky", needs_approval=True)
    server.reply(tool_calls=[("risky", {})])

    result = await CallableBackend(support(model, tools=[risky])).invoke_once("Do it")

    assert [call["name"] for call in result.pending_approvals] == ["risky"]
    assert [call["name"] for call in result.tool_calls] == ["risky"]


async def test_an_unknown_tool_is_an_error_with_what_was_seen(server, model):
    server.reply(tool_calls=[("lookup", {})])

    with pytest.raises(BackendSessionError, match="lookup") as caught:
        await CallableBackend(support(model, tools=[lookup_order])).invoke_once("Where is 7?")

    assert [call["name"] for call in caught.value.seen.tool_calls] == ["lookup"]


async def test_it_streams_and_the_conversation_goes_on(server, model):
    server.reply("It is late.").reply("Yes.")
    session = await CallableBackend(support(model)).create_session()

    pieces = [piece async for piece in session.send_streaming("Where is 7?")]
    await session.send("Really?")

    assert pieces == ["It", " is", " late."]
    roles = [message["role"] for message in conversation(server.requests[-1])]
    assert roles == ["user", "assistant", "user"]


async def test_a_stream_that_nobody_reads_to_its_end_leaves_no_task(server, model):
    server.reply("It is late.")
    session = await CallableBackend(support(model)).create_session()
    before = asyncio.all_tasks()

    stream = session.send_streaming("Where is 7?")
    await anext(stream)
    await stream.aclose()

    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
async def test_a_cancelled_turn_leaves_no_task_and_no_trace(server, model, streaming):
    session = await CallableBackend(support(model)).create_session()
    before = asyncio.all_tasks()

    async def ask():
        if streaming:
            return [piece async for piece in session.send_streaming("hang")]
        return await session.send("hang")

    with server.held():
        task = asyncio.create_task(ask())
        await server.saw(1)
        task.cancel()
        await asyncio.wait([task])

    assert task.cancelled()
    assert asyncio.all_tasks() == before
    await session.send("Hello")
    assert [m["content"] for m in conversation(server.requests[-1])] == ["Hello"]


async def test_earlier_tool_calls_and_their_results_reach_the_model(server, model):
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"n": 9}'}}
    context = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "shipped"},
        {"role": "assistant", "content": "OK: one"},
    ]

    result = await CallableBackend(support(model)).invoke_once("two", context)

    [one, calls, found, answer, two] = conversation(server.requests[0])
    assert (one["content"], answer["content"], two["content"]) == ("one", "OK: one", "two")
    assert (calls["tool_calls"], found["content"]) == ([call], "shipped")
    assert (result.tool_calls, result.tool_results) == ([], [])


async def test_the_users_hooks_and_context_are_used(server, model):
    class Hooks(RunHooks):
        def __init__(self):
            self.seen = []

        async def on_agent_start(self, context, agent):
            self.seen.append(context.context)

        async def on_tool_end(self, context, agent, tool, result):
            self.seen.append(tool.name)

    server.otherwise("Late.")
    server.reply(tool_calls=[("lookup_order", {"order_id": "7"})])
    hooks = Hooks()
    agent = support(model, tools=[lookup_order])
    backend = CallableBackend(partial(Runner.run, agent, hooks=hooks, context=lambda: ["fresh"]))

    await backend.invoke_once("Where is 7?")
    await backend.invoke_once("Thanks")

    assert hooks.seen == [["fresh"], "lookup_order", ["fresh"]]
    assert hooks.seen[0] is not hooks.seen[2]


async def test_the_output_of_an_agent_with_an_output_type_is_structured(server, model):
    class Status(agents.agent_output.BaseModel):
        late: bool

    server.reply('{"late": true}')
    agent = support(model, output_type=Status)

    result = await CallableBackend(agent).invoke_once("Where is 7?")

    assert (result.response, result.structured_output) == ('{"late": true}', {"late": True})


async def test_the_agent_stays_as_it_was(server, model):
    server.reply(tool_calls=[("lookup_order", {"order_id": "7"})]).reply("Late.")
    agent = support(model, tools=[lookup_order])
    before = {**vars(agent), "tools": list(agent.tools)}

    await CallableBackend(agent).invoke_once("Where is 7?")

    assert {name: vars(agent)[name] for name in before} == before


class Traces(agents.TracingProcessor):
    """What a user's own trace processor gets."""

    def __init__(self):
        self.ended = []

    def on_trace_start(self, trace): ...

    def on_trace_end(self, trace):
        self.ended.append(trace.name)

    def on_span_start(self, span): ...

    def on_span_end(self, span): ...

    def shutdown(self): ...

    def force_flush(self): ...


@pytest.fixture
def provider(monkeypatch):
    """A trace provider of the test's own, as if the SDK had just been imported."""
    from agents.tracing import setup

    monkeypatch.setattr(setup, "GLOBAL_TRACE_PROVIDER", None)
    return monkeypatch


async def test_a_run_is_traced_only_for_a_processor_of_the_user(server, model, provider):
    from agents.tracing import processors

    server.otherwise("Hello.")
    backend, uploads, users = CallableBackend(support(model)), Traces(), Traces()
    provider.setattr(processors, "_global_processor", uploads)

    await backend.invoke_once("Hello")
    assert uploads.ended == []

    agents.set_trace_processors([users])
    await backend.invoke_once("Hello")
    assert users.ended == ["Agent workflow"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"session": object()}, "'session' would let test cases share a conversation"),
        ({"starting_agent": None}, "'starting_agent' cannot be chosen for Runner.run; write"),
    ],
)
async def test_arguments_that_cannot_be_chosen_are_refused(options, message):
    with pytest.raises(BackendInitError, match=message):
        await CallableBackend(partial(Runner.run, Agent(name="support"), **options)).initialize()


async def test_an_agent_with_mcp_servers_has_unknown_tools(server, model):
    class Server(agents.mcp.MCPServerStdio):
        pass

    agent = support(model, mcp_servers=[Server(params={"command": "true"})])

    assert adapt(agent).tools() is None


async def test_a_class_of_a_users_package_called_agents_is_no_agent_of_the_sdk():
    async def run(self, message):
        return f"mine: {message}"

    mine = type("Agent", (), {"__module__": "agents.support", "run": run})

    assert (await CallableBackend(mine()).invoke_once("Hello")).response == "mine: Hello"


async def test_the_answer_is_that_of_runner(server, model):
    agent = support(model)

    ours = await CallableBackend(agent).invoke_once("Hello")
    theirs = await Runner.run(agent, "Hello", run_config=RunConfig(tracing_disabled=True))

    assert ours.response == theirs.final_output
    first, second = server.requests
    assert {**first.body, "input": 0} == {**second.body, "input": 0}
