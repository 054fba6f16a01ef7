"""Agents of Google ADK, where it is installed: `scripts/frameworks google-adk` runs these tests."""

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.errors import BackendError
from holodeck.lib.backends.python.backend import CallableBackend
from support.frameworks import lookup_order, results_of_turn

pytest.importorskip("google.adk", reason="scripts/frameworks google-adk installs it")

from fastapi.openapi.models import APIKey, APIKeyIn
from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.apps import App
from google.adk.auth import AuthConfig
from google.adk.tools import ToolContext
from google.adk.tools.agent_tool import AgentTool

from support.frameworks.google_adk import fake_model


def script(request):
    """The triage hands over, and whoever has the tool looks the order up."""
    results = results_of_turn(request)
    if "You are triage" in request.system and not results:
        return Reply(tool_calls=[("transfer_to_agent", {"agent_name": "billing"})])
    if results and "order" in results[-1]:
        return Reply(f"said: {results[-1]}")
    if "lookup_order" in request.tools:
        return Reply(tool_calls=[("lookup_order", {"order_id": "7"})])
    return Reply("hello")


@pytest.fixture
async def model():
    with FakeOpenAI(script) as server:
        made = fake_model(server)
        yield made
        await made.client.close()


async def ask(agent, message="Where is order 7?", context=None):
    backend = CallableBackend(agent)
    await backend.initialize()
    try:
        return await backend.invoke_once(message, context)
    finally:
        await backend.teardown()


@pytest.mark.parametrize("is_app", [False, True], ids=["agent", "app"])
async def test_google_adk_agents_that_hand_over_are_named_in_order(model, is_app):
    billing = LlmAgent(model=model, name="billing", instruction="Bill.", tools=[lookup_order])
    triage = LlmAgent(
        model=model, name="triage", instruction="You are triage.", sub_agents=[billing]
    )

    result = await ask(App(name="shop", root_agent=triage) if is_app else triage)

    assert result.agents == ["triage", "billing"]
    calls = [(call["name"], call["agent"], call.get("transfer_to")) for call in result.tool_calls]
    assert calls == [
        ("transfer_to_agent", "triage", "billing"),
        ("lookup_order", "billing", None),
    ]
    assert result.response == "said: order 7 is shipped"
    assert result.tools == ["lookup_order", "transfer_to_agent"]


async def test_of_a_google_adk_agent_that_is_a_tool_the_tools_that_ran_are_known():
    def delegate(request):
        if results_of_turn(request):
            return Reply("done")
        if "You are triage" in request.system:
            return Reply(tool_calls=[("billing", {"request": "order 7"})])
        return Reply(tool_calls=[("lookup_order", {"order_id": "7"})])

    with FakeOpenAI(delegate) as server:
        llm = fake_model(server)
        billing = LlmAgent(model=llm, name="billing", instruction="Bill.", tools=[lookup_order])
        tools = [AgentTool(billing)]
        agent = LlmAgent(model=llm, name="triage", instruction="You are triage.", tools=tools)
        result = await ask(agent)
        await llm.client.close()

    assert [call["name"] for call in result.tool_calls] == ["billing", "lookup_order"]
    assert "'billing'" in result.tool_calls_problem  # it may have requested others
    assert result.token_usage.prompt_tokens == 40


async def test_google_adk_agents_in_a_sequence_are_named_in_order(model):
    members = [LlmAgent(model=model, name=name, instruction="Greet.") for name in ("one", "two")]

    result = await ask(SequentialAgent(name="both", sub_agents=members))

    assert (result.agents, result.response) == (["one", "two"], "hello")
    assert result.token_usage.prompt_tokens == 20


async def test_a_google_adk_tool_that_needs_a_credential_is_an_error(model):
    header = APIKey(**{"in": APIKeyIn.header, "name": "X-Key"})

    def lookup_order(order_id: str, tool_context: ToolContext):
        tool_context.request_credential(AuthConfig(auth_scheme=header))

    agent = LlmAgent(model=model, name="support", instruction="Help.", tools=[lookup_order])

    with pytest.raises(
        BackendError, match=r"^the agent waits for input of a person \(adk_request_"
    ):
        await ask(agent)


async def test_a_google_adk_agent_takes_no_system_messages_as_history(model):
    agent = LlmAgent(model=model, name="support", instruction="Help.")

    with pytest.raises(BackendError, match="has no system messages; write it as 'instruction'"):
        await ask(agent, context=[{"role": "system", "content": "Be kind."}])
