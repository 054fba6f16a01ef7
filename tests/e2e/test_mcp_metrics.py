"""DeepEval's metrics about MCP servers on an agent with a real server, from YAML to the report."""

import json

import pytest

from fakes import Reply
from support.mcp_servers import COMMAND

METRICS = ("mcp_use", "multi_turn_mcp_use", "mcp_task_completion")
SERVER = {
    "name": "orders",
    "type": "mcp",
    "command": COMMAND[0],
    "args": COMMAND[1:],
    "timeout": 600,
    "request_timeout": 600,
}


@pytest.fixture
def run(agent_dir):
    """Runs a case whose agent calls a tool, judged with 0.75, and returns rows and exit code."""

    def said(request):
        if "response_format" in request.body:
            return json.dumps({"score": 0.75, "reason": "the judge's reason"})
        results = [one for one in request.body["messages"] if one["role"] == "tool"]
        if "lookup_order" in request.tools and not results:
            return Reply(tool_calls=[("lookup_order", {"order_id": 7})])
        return "It is late."

    def ran(**keys):
        agent_dir.server.otherwise(said)
        metrics = [{"type": "deepeval", "metric": name} for name in METRICS]
        agent_dir.write_agent(
            **{"backend": "chat", "evaluations": {"metrics": metrics}, **keys},
            test_cases=[{"name": "order", "input": "Where is order 7?"}],
        )
        process = agent_dir.run("test", "-o", "report.json")
        report = json.loads((agent_dir.path / "report.json").read_text())
        return report["results"][0]["metric_results"], process

    return ran


@pytest.mark.parametrize("backend", ["chat", "semantic_kernel"])
def test_servers_and_their_calls_reach_the_judge(run, agent_dir, backend):
    rows, process = run(tools=[SERVER], backend=backend)

    assert process.code == 0, process.stderr
    assert [(row["metric_name"], row["score"]) for row in rows] == [(one, 0.75) for one in METRICS]
    assert all("the judge's reason" in row["reasoning"] for row in rows)
    prompts = [
        request.prompt for request in agent_dir.server.requests if "response_format" in request.body
    ]
    assert len(prompts) == 5
    assert all("late" in prompt and "order_id" in prompt for prompt in prompts)
    assert sum("Look an order up." in prompt for prompt in prompts) == 4
    assert sum("MCP Server orders" in prompt for prompt in prompts) == 4


def test_of_a_recorded_run_the_servers_are_unknown(run, agent_dir):
    run(tools=[SERVER])

    process = agent_dir.run("score", "-o", "scored.json")

    assert process.code == 4
    report = json.loads((agent_dir.path / "scored.json").read_text())
    rows = report["results"][0]["metric_results"]
    assert len(rows) == len(METRICS)
    assert all("the tools that the agent can call are unknown" in row["error"] for row in rows)


def test_without_a_server_the_rows_are_errors(run):
    rows, process = run()

    assert process.code == 4
    assert all("the agent has no tools of any" in row["error"] for row in rows)


def test_the_servers_of_an_agent_in_code_are_unknown(run, agent_dir):
    agent_dir.write("own.py", "def reply(message):\n    return 'It is late.'\n")

    rows, process = run(
        backend="own:reply",
        model=None,
        instructions=None,
        evaluations={
            "model": agent_dir.model(),
            "metrics": [{"type": "deepeval", "metric": name} for name in METRICS],
        },
    )

    assert process.code == 4
    assert all("unknown" in row["error"] for row in rows)
