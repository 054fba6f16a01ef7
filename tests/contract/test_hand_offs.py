"""A transfer to another agent is a tool call of the model, in every framework that has one."""

from typing import Annotated

import pytest
from openai import AsyncOpenAI

import holodeck
from fakes import FakeOpenAI, Reply
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.compare.trajectories import compare_trajectories
from support.frameworks import lookup_order, results_of_turn
from support.server import PATIENT_S

TRIAGE = "You are triage."


def model(request):
    """The triage hands over to billing, which looks the order up."""
    if results := [result for result in results_of_turn(request) if "shipped" in result]:
        return Reply(results[0])
    if any(name.endswith("lookup_order") for name in request.tools):
        [tool] = [name for name in request.tools if name.endswith("lookup_order")]
        return Reply(tool_calls=[(tool, {"order_id": "7"})])
    [transfer] = [name for name in request.tools if "billing" in name]
    return Reply(tool_calls=[(transfer, {})])


def semantic_kernel(client):
    from semantic_kernel.agents import (
        ChatCompletionAgent,
        HandoffOrchestration,
        OrchestrationHandoffs,
    )
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
    from semantic_kernel.functions import kernel_function

    class Orders:
        lookup_order = staticmethod(kernel_function(name="lookup_order")(lookup_order))

    def agent(name, instructions, *plugins):
        service = OpenAIChatCompletion(ai_model_id="fake", async_client=client)
        return ChatCompletionAgent(
            service=service,
            name=name,
            description=name,
            instructions=instructions,
            plugins=list(plugins),
        )

    triage, billing = agent("triage", TRIAGE), agent("billing", "Bill.", Orders())
    handoffs = OrchestrationHandoffs().add(triage, billing)
    return HandoffOrchestration(members=[triage, billing], handoffs=handoffs)


def agent_framework(client):
    from agent_framework import Agent
    from agent_framework_openai import OpenAIChatCompletionClient
    from agent_framework_orchestrations import HandoffBuilder

    llm = OpenAIChatCompletionClient(model="fake", async_client=client)
    rules = {"require_per_service_call_history_persistence": True}
    triage = Agent(llm, TRIAGE, name="triage", **rules)
    billing = Agent(llm, "Bill.", name="billing", tools=[lookup_order], **rules)
    builder = HandoffBuilder(participants=[triage, billing]).with_start_agent(triage)
    return builder.add_handoff(triage, [billing])


def openai_agents(client):
    from agents import Agent, function_tool
    from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel

    llm = OpenAIChatCompletionsModel("fake", client)
    billing = Agent(name="billing", model=llm, tools=[function_tool(lookup_order)])
    return Agent(name="triage", instructions=TRIAGE, model=llm, handoffs=[billing])


def langgraph(client):
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import InjectedState
    from langgraph.types import Command

    @tool
    def transfer_to_billing(state: Annotated[dict, InjectedState]) -> Command:
        """Hand over to billing."""
        *_, last = state["messages"]
        assert isinstance(last, AIMessage)
        done = ToolMessage("Transferred.", tool_call_id=last.tool_calls[0]["id"])
        update = {"messages": [*state["messages"], done]}
        return Command(goto="billing", graph=Command.PARENT, update=update)

    llm = ChatOpenAI(
        model="fake",
        api_key="none",
        async_client=client.chat.completions,
        root_async_client=client,
    )
    graph = StateGraph(MessagesState)
    graph.add_node(
        "triage",
        create_agent(llm, [transfer_to_billing], system_prompt=TRIAGE, name="triage"),
        destinations=("billing",),
    )
    graph.add_node("billing", create_agent(llm, [lookup_order], name="billing"))
    graph.add_edge(START, "triage")
    return graph.compile()


in_every_framework = pytest.mark.parametrize(
    ("build", "transfer"),
    [
        (semantic_kernel, "Handoff-transfer_to_billing"),
        (agent_framework, "handoff_to_billing"),
        (openai_agents, "transfer_to_billing"),
        (langgraph, "transfer_to_billing"),
    ],
    ids=["semantic_kernel", "agent_framework", "openai_agents", "langgraph"],
)


@in_every_framework
async def test_a_transfer_is_a_tool_call_of_the_agent_that_hands_over(build, transfer):
    with FakeOpenAI(model) as server:
        client = AsyncOpenAI(
            base_url=server.url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S
        )
        backend = CallableBackend(build(client))
        await backend.initialize()
        result = await backend.invoke_once("Where is order 7?")
        await backend.teardown()
        await client.close()

    first, second = result.tool_calls
    assert (first["name"], first["agent"]) == (transfer, "triage")
    assert (second["name"].endswith("lookup_order"), second["agent"]) == (True, "billing")
    assert (first["transfer_to"], second.get("transfer_to")) == ("billing", None)
    assert result.agents == ["triage", "billing"]
    assert result.tools is None or transfer in result.tools


@in_every_framework
async def test_a_transfer_that_is_expected_has_run(build, transfer):
    case = {"input": "Where is order 7?", "expected_tools": [transfer, "lookup_order"]}
    with FakeOpenAI(model) as server:
        client = AsyncOpenAI(
            base_url=server.url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S
        )
        report = await holodeck.arun(build(client), [case])
        await client.close()

    [result] = report.results
    assert report.passed, result.tool_checks
    assert [call.error for call in result.tool_invocations] == [None, None]


@pytest.mark.parametrize("build", [semantic_kernel, agent_framework, openai_agents, langgraph])
async def test_stubs_take_the_calls_of_the_agent_that_takes_over(build):
    stub = {"returns": "order 7 is shipped by nobody"}
    keys = {"tools_in_test": "sealed"} if build is not langgraph else {}
    case = {"input": "Where is order 7?", "stubs": {"lookup_order": [stub]}, **keys}
    with FakeOpenAI(model) as server:
        client = AsyncOpenAI(
            base_url=server.url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S
        )
        report = await holodeck.arun(build(client), [case | {"forbidden_tools": ["erase"]}])
        await client.close()

    [result] = report.results
    assert report.passed, result.tool_checks
    assert result.agent_response == stub["returns"]
    assert [call.stub and call.stub.kind for call in result.tool_invocations] == [None, "returns"]


@pytest.mark.parametrize("build", [agent_framework, openai_agents, langgraph])
async def test_a_hand_off_is_the_same_as_that_of_semantic_kernel(build):
    with FakeOpenAI(model) as server:
        client = AsyncOpenAI(
            base_url=server.url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S
        )
        agents = semantic_kernel(client), build(client)
        reports = [await holodeck.arun(agent, [{"input": "Where is order 7?"}]) for agent in agents]
        await client.close()

    compared = compare_trajectories(*(report.results[0] for report in reports))
    assert (compared.state, compared.agents, compared.divergence) == ("same", "same", None)
