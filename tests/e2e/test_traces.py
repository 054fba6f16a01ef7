"""Traces of a run: what a collector gets, what the console shows, and what neither is told."""

import json

import pytest

from fakes import case
from support.checks import assert_plain
from support.cli import without_durations
from support.collector import collector, plain

TOKENS = "gen_ai.client.token.usage"
TOOL = {
    "type": "function", "name": "get_weather", "file": "tools.py", "function": "get_weather",
}  # fmt: skip


@pytest.fixture
def traced(agent_dir):
    """An agent that calls a tool, and whose traces go where the function is told."""
    agent_dir.server.reply(tool_calls=[("get_weather", {"city": "secret city"})], usage=(10, 5))
    agent_dir.server.reply("3 degrees in secret city", usage=(20, 7))
    agent_dir.write("tools.py", "def get_weather(city: str) -> str:\n    return f'3 in {city}'\n")

    def write(checks=(), **observability):
        weather = case("weather", "How is secret city?", contains="3 degrees") | dict(checks)
        agent_dir.write_agent(
            tools=[TOOL],
            test_cases=[weather],
            observability={"enabled": True, **observability},
        )
        return agent_dir

    return write


def test_a_collector_gets_a_span_for_run_case_agent_model_tool_and_check(traced):
    with collector() as got:
        ran = traced(
            exporters={"otlp": {"endpoint": got.url, "compression": "gzip"}},
            resource_attributes={"team": "search"},
        ).run("test")

    assert_plain(ran)
    assert (ran.code, ran.stderr) == (0, "")
    assert got.resource["service.name"] == "holodeck-greeter"
    assert got.resource["team"] == "search"
    parents = {
        "holodeck.run": "",
        "holodeck.case": "holodeck.run",
        "holodeck.turn": "holodeck.case",
        "invoke_agent greeter": "holodeck.turn",
        "execute_tool get_weather": "invoke_agent greeter",
        "holodeck.check contains": "holodeck.case",
    }
    assert set(parents) <= set(got.names)
    assert {name: got.parent(name) for name in parents} == parents
    assert got.attributes("holodeck.case")["test.case.name"] == "weather"
    assert got.attributes("holodeck.case")["test.case.result.status"] == "pass"
    assert got.attributes("invoke_agent greeter")["gen_ai.usage.input_tokens"] == 30
    [(name, event)] = got.events("holodeck.check contains")
    assert (name, event["gen_ai.evaluation.name"]) == ("gen_ai.evaluation.result", "contains")
    assert (event["gen_ai.evaluation.score.value"], event["gen_ai.evaluation.score.label"]) == (
        1.0,
        "pass",
    )
    turn = got.attributes("holodeck.turn")["gen_ai.conversation.id"]
    assert got.attributes("invoke_agent greeter")["gen_ai.conversation.id"] == turn
    chats = [span for span in got.spans if span.name.startswith("chat ")]
    assert {plain(span.attributes)["gen_ai.provider.name"] for span in chats} == {"openai"}
    [(outcome, cases)] = got.points("holodeck.case.outcomes")
    assert (outcome["holodeck.case.outcome"], cases.as_int) == ("passed", 1)
    usage = {one["gen_ai.token.type"]: point.sum for one, point in got.points(TOKENS)}
    assert usage == {"input": 30, "output": 12}
    assert "secret city" not in f"{got.spans}{got.metrics}{got.logs}"


def test_tool_checks_and_criteria_are_events_of_their_case(traced, agent_dir):
    verdict = {"c1": {"reasoning": "about secret city", "status": "failed"}}
    agent_dir.server.when("Criteria", json.dumps(verdict))
    expected = {"name": "get_weather", "args": {"city": "secret city"}}
    checks = {
        "expected_tools": [expected],
        "criteria": ["It is brief"],
        "max_tool_calls": 5,
    }
    with collector() as got:
        ran = traced(checks, exporters={"otlp": {"endpoint": got.url}}).run("test")

    assert ran.code == 1, ran.stderr
    found = [
        (event["gen_ai.evaluation.name"], event["gen_ai.evaluation.score.label"])
        for name, event in got.events("holodeck.case")
        if name == "gen_ai.evaluation.result"
    ]
    assert found == [
        ("get_weather", "pass"),
        ("at most 5 tool calls", "pass"),
        ("It is brief", "fail"),
    ]
    assert "secret city" not in f"{got.spans}{got.metrics}{got.logs}"


def test_content_is_sent_only_where_it_is_asked_for(traced):
    with collector() as got:
        traced(
            exporters={"otlp": {"endpoint": got.url}},
            traces={
                "capture_content": True,
                "capture_evaluation_content": True,
                "redaction_patterns": ["secret"],
            },
        ).run("test")

    assert json.loads(got.attributes("invoke_agent greeter")["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "3 degrees in *** city"}]}
    ]
    check = got.attributes("holodeck.check contains")
    assert "*** city" in check["gen_ai.input.messages"]
    assert "3 degrees in *** city" in check["gen_ai.output.messages"]
    assert "*** city" in got.attributes("execute_tool get_weather")["gen_ai.tool.call.arguments"]
    assert "secret" not in f"{got.spans}{got.metrics}{got.logs}"


def test_the_console_gets_json_on_stderr_and_the_results_stay_on_stdout(traced):
    ran = traced(exporters={"console": {"pretty_print": False}}).run("test")

    assert_plain(ran)
    assert ran.code == 0
    spans = [json.loads(line) for line in ran.stderr.splitlines()]
    assert {"holodeck.run", "execute_tool get_weather", "holodeck.case.outcomes"} <= {
        one["name"] for one in spans
    }
    assert "secret city" not in ran.stderr
    assert without_durations(ran.stdout).startswith("[Test 1/1] PASS weather\n")


def test_a_collector_that_is_not_there_costs_a_warning_and_no_result(bot_dir, write_bot):
    write_bot(
        observability={
            "enabled": True, "exporters": {"otlp": {"endpoint": "http://127.0.0.1:9"}},
        }
    )  # fmt: skip

    ran = bot_dir.run("test")

    assert_plain(ran)
    assert ran.code == 0
    [line] = ran.stderr.splitlines()
    assert line.startswith("WARNING: traces")
    assert "could not be delivered" in line
    assert "Test Results: 1/1 passed" in ran.stdout
