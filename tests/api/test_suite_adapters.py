"""The adapters that come with `holodeck.suite`."""

# ruff: noqa: A002 - `input` is what adapters call it

from typing import NamedTuple

import pytest

from fakes import FakeOpenAI
from holodeck.suite import Runner, Scenario, TokenUsage, ToolCall
from holodeck.suite.adapters.langchain import LangChainAdapter
from holodeck.suite.adapters.openai import OpenAIAdapter

LOOK = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
}


@pytest.fixture
def server(monkeypatch):
    with FakeOpenAI() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        yield server


def test_the_openai_adapter_sends_each_input_alone_and_reports_answer_and_tokens(server):
    adapter = OpenAIAdapter("gpt-4o", [LOOK], system_prompt="Be brief.", temperature=0)

    adapter.run("one")
    result = adapter.run("two")

    request = server.requests[-1].body
    assert [one["content"] for one in request["messages"]] == ["Be brief.", "two"]
    assert (request["model"], request["temperature"]) == ("gpt-4o", 0)
    assert request["tools"] == [LOOK]
    assert result.output == "OK: two"
    assert isinstance(result.token_usage, TokenUsage)
    assert result.token_usage.prompt_tokens > 0
    assert result.raw_response["choices"][0]["message"]["content"] == "OK: two"
    assert result.knows_tool_calls
    assert result.latency_ms > 0


def test_the_openai_adapter_reports_requested_tool_calls(server):
    server.reply(tool_calls=[("look", {"at": 1})])
    scenario = Scenario(name="a", input="b", expected_tool_args={"look": {"at": 1}})

    result = Runner(OpenAIAdapter(tools=[LOOK])).run_scenario(scenario)

    assert result.agent_result.tool_calls == [ToolCall(name="look", arguments={"at": 1})]
    assert "the agent answered nothing" in result.scores[0].explanation


def test_the_openai_adapter_says_that_no_context_is_sent(server, caplog):
    OpenAIAdapter(api_key="sk-other").run("a", context={"user": "u"})

    assert "sends no context" in caplog.text


class Action(NamedTuple):
    tool: str
    tool_input: object


class AgentExecutor:
    """What `invoke` of LangChain's class takes and returns."""

    def __init__(self, steps):
        self.steps = steps
        self.seen = None

    def invoke(self, input, config=None, **kwargs):
        self.seen = (input, kwargs)
        found = {**input, "output": "done"}
        return found if self.steps is None else {**found, "intermediate_steps": self.steps}


AgentExecutor.__module__ = "langchain_classic.agents.agent"


class Derived(AgentExecutor):
    pass


def test_the_langchain_adapter_reports_steps_as_tool_calls():
    executor = Derived([(Action("look", {"at": 1}), 42), (Action("ask", "why"), "so")])

    result = LangChainAdapter(executor).run("hello", context={"user": "u"})

    assert executor.seen == ({"input": "hello", "user": "u"}, {"return_only_outputs": False})
    assert result.output == "done"
    assert result.tool_calls == [
        ToolCall(name="look", arguments={"at": 1}, result="42"),
        ToolCall(name="ask", arguments={"input": "why"}, result="so"),
    ]
    assert len(result.reasoning_trace) == 2


def test_tool_calls_of_langchain_are_unknown_without_intermediate_steps():
    adapter = LangChainAdapter(AgentExecutor(None))

    result = Runner(adapter).run_scenario(Scenario(name="a", input="b", expected_tools=[]))

    assert result.outcome == "metric_error"
    assert "tool calls are unknown" in result.error


def test_other_agents_of_langchain_are_refused_with_what_takes_them():
    with pytest.raises(TypeError, match=r"found a Action; .* holodeck\.run\(\)"):
        LangChainAdapter(Action("look", {}))
