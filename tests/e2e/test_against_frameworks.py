"""A Semantic Kernel agent and its Agent Framework twin, compared on the same test cases."""

import json

import pytest

from fakes import Reply, run_cli
from support.checks import assert_plain

SEMANTIC_KERNEL = """
from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function

class OrderPlugin:
    @kernel_function(description="Where an order is.")
    def lookup_order(self, order_id: str) -> str:
        return f"{order_id} is paid"

def agent():
    service = OpenAIChatCompletion("fake", async_client=AsyncOpenAI())
    return ChatCompletionAgent(service=service, name="support", plugins=[OrderPlugin()])
"""
AGENT_FRAMEWORK = """
from agent_framework import Agent
from agent_framework_openai import OpenAIChatCompletionClient
from openai import AsyncOpenAI

def lookup_order(order_id: str) -> str:
    "Where an order is."
    return f"{order_id} is paid"

def agent():
    client = OpenAIChatCompletionClient(model="fake", async_client=AsyncOpenAI())
    return Agent(client, name="support", tools=[lookup_order])
"""
A_YAML = """
name: support
backend: "old:agent"
test_cases:
  - name: status
    input: Where is order 7?
    expected_tools: [{name: lookup_order, args: {order_id: "7"}}]
    evaluations: [{metric: contains, value: paid}]
  - name: two turns
    turns:
      - {input: Hello!, expected_tools: []}
      - {input: Where is order 7?, expected_tools: [{name: lookup_order}]}
"""


def answer(request):
    """Call the tool that the agent offers where a user asks for the order, then tell its result."""
    last = request.messages[-1]
    if last["role"] == "tool":
        return Reply(f"Order {last['content']}.")
    tools = request.body.get("tools")
    if "order" in request.prompt and tools:
        return Reply(tool_calls=[(tools[0]["function"]["name"], {"order_id": "7"})])
    return Reply("Your order is paid, I think.")


@pytest.fixture
def compare(tmp_path, fake_openai):
    """Compare the agents; the second has this code."""
    folder = tmp_path / "move"
    folder.mkdir()
    fake_openai.otherwise(answer)

    def run(new, *args):
        (folder / "a.yaml").write_text(A_YAML)
        (folder / "b.yaml").write_text('name: support\nbackend: "new:agent"\n')
        (folder / "old.py").write_text(SEMANTIC_KERNEL)
        (folder / "new.py").write_text(new)
        env = {"OPENAI_BASE_URL": fake_openai.url, "OPENAI_API_KEY": "not-a-real-key"}
        ran = run_cli(
            "test", "a.yaml", "--against", "b.yaml", "--fail-on", "regression", "-o", "r.json",
            *args, cwd=folder, env=env,
        )  # fmt: skip
        assert_plain(ran)
        pairs = json.loads((folder / "r.json").read_text())["pairs"]
        return ran, {pair["name"]: pair for pair in pairs}

    return run


def test_a_faithful_twin_has_the_same_tool_calls_and_results(compare):
    ran, pairs = compare(AGENT_FRAMEWORK)

    assert ran.code == 0
    assert [pair["verdict"] for pair in pairs.values()] == ["both", "both"]
    assert [pair["trajectories"]["state"] for pair in pairs.values()] == ["same", "same"]
    assert {pair["trajectories"]["unknown_results"] for pair in pairs.values()} == {0}
    assert pairs["status"]["tokens"] == {"first": 30, "second": 30}


def test_a_twin_without_its_tool_fails_the_comparison_at_that_step(compare):
    ran, pairs = compare(AGENT_FRAMEWORK.replace(", tools=[lookup_order]", ""))

    assert ran.code == 1
    assert [pair["verdict"] for pair in pairs.values()] == ["only_first", "only_first"]
    assert "parted at turn 2, call 1: A called OrderPlugin-lookup_order(order_id='7')" in ran.stdout


def test_a_tool_that_was_changed_on_the_way_is_found_by_its_result(compare):
    ran, pairs = compare(AGENT_FRAMEWORK.replace("is paid", "is payed"))

    assert pairs["status"]["trajectories"]["divergence"]["kind"] == "result"
    assert "B lookup_order(order_id='7') returned '7 is payed'" in ran.stdout
