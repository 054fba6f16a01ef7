"""An agent that another one uses as a tool: its own tool calls are seen, or unknown."""

import pytest

from fakes import FakeOpenAI, Reply
from holodeck import arun
from support.server import PATIENT_S

CASES = [
    {"name": "delegates", "input": "hi", "expected_tools": ["billing"]},
    {"name": "deletes nothing", "input": "hi", "forbidden_tools": ["delete_order"]},
    {"name": "calls nothing else", "input": "hi", "expected_tools": ["billing"],
     "only_expected_tools": True},
]  # fmt: skip


def delete_order(order_id: str) -> str:
    """Delete an order."""
    return f"{order_id} deleted"


def model(request):
    """The front agent asks the billing agent, which deletes an order before it answers."""
    is_front = "the front desk" in str([request.system, request.messages])
    if request.tool_results:
        return Reply("done")
    [tool] = [one["function"] for one in request.body["tools"]]
    if not is_front:
        return Reply(None, tool_calls=[(tool["name"], {"order_id": "7"})])
    [argument] = tool["parameters"]["required"]
    return Reply(None, tool_calls=[(tool["name"], {argument: "please"})])


def openai_agents(client):
    from agents import Agent, function_tool
    from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel

    llm = OpenAIChatCompletionsModel("fake", client)
    billing = Agent(name="billing", model=llm, tools=[function_tool(delete_order)])
    tools = [billing.as_tool("billing", "Ask billing.")]
    return Agent(name="front", instructions="You are the front desk.", model=llm, tools=tools)


def agent_framework(client):
    from agent_framework import Agent
    from agent_framework_openai import OpenAIChatCompletionClient

    llm = OpenAIChatCompletionClient(model="fake", async_client=client)
    billing = Agent(llm, "You do the bills.", name="billing", tools=[delete_order])
    return Agent(llm, "You are the front desk.", name="front", tools=[billing.as_tool()])


def agent_framework_workflow(client):
    from agent_framework_orchestrations import SequentialBuilder

    return SequentialBuilder(participants=[agent_framework(client)])


def semantic_kernel(client):
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
    from semantic_kernel.functions import kernel_function

    class Orders:
        delete_order = staticmethod(kernel_function(name="delete_order")(delete_order))

    def agent(name, instructions, plugin):
        service = OpenAIChatCompletion(ai_model_id="fake", async_client=client)
        return ChatCompletionAgent(
            service=service, name=name, instructions=instructions, plugins=[plugin]
        )

    billing = agent("billing", "You do the bills.", Orders())
    return agent("front", "You are the front desk.", billing)


def semantic_kernel_orchestration(client):
    from semantic_kernel.agents import SequentialOrchestration

    return SequentialOrchestration(members=[semantic_kernel(client)])


AGENTS = [
    openai_agents,
    agent_framework,
    agent_framework_workflow,
    semantic_kernel,
    semantic_kernel_orchestration,
]


# Semantic Kernel looks through every attribute of an agent that is a plugin
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211")
@pytest.mark.parametrize("make_agent", AGENTS)
async def test_what_an_agent_used_as_a_tool_calls_is_seen(make_agent):
    from openai import AsyncOpenAI

    with FakeOpenAI(model) as server:
        async with AsyncOpenAI(
            base_url=server.url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S
        ) as client:
            report = await arun(make_agent(client), CASES, parallel_test_cases=1)
        requests = server.requests

    assert any("7 deleted" in str(request.tool_results) for request in requests)
    delegates, deletes, others = report.results
    assert delegates.passed
    assert deletes.outcome == "failed"
    assert others.outcome in {"failed", "metric_error"}
    for result in report.results:
        [_, call] = result.tool_invocations
        assert "delete_order" in call.name
        usage = result.token_usage
        assert (usage.prompt_tokens, usage.completion_tokens) == (40, 20)
