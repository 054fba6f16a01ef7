"""The example of an agent of Semantic Kernel with two plugins, with the command line."""

import json
import shutil
from pathlib import Path

from fakes import FakeOpenAI, Reply, run_cli
from support.frameworks import results_of_turn

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "restaurant"


def answer(request):
    """What the model of the assistant says."""
    if results := results_of_turn(request):
        return f"It is: {results[-1]}"
    if "cost" in request.prompt:
        return Reply(tool_calls=[("Menu-get_price", {"dish": "Clam Chowder"})])
    if "seven" in request.prompt:
        return Reply(tool_calls=[("Tables-reserve", {"guests": 4, "time": "19:30"})])
    return "Gladly; when?" if "table" in request.prompt else "Welcome!"


def run_example(folder, answer):
    """Return the outcome of the command, and the requests that the model got."""
    shutil.copytree(EXAMPLE, folder)
    with FakeOpenAI(answer) as server:
        ran = run_cli(
            "test", "agent.yaml", "-o", "report.json", "-o", "report.md",
            cwd=folder, env={"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "not-a-real-key"},
        )  # fmt: skip
        return ran, server.requests


def test_the_assistant_uses_both_plugins_and_the_golden_report_shows_how(tmp_path, golden):
    folder = tmp_path / "restaurant"

    ran, requests = run_example(folder, answer)

    assert ran.code == 0, ran.stdout + ran.stderr
    price, table, hello = json.loads((folder / "report.json").read_text())["results"]
    assert price["tool_invocations"][0]["result"] == 9.5
    assert [len(turn["tool_invocations"]) for turn in table["turns"]] == [0, 1]
    assert hello["tool_invocations"] == []
    total = sum(one["token_usage"]["total_tokens"] for one in (price, table, hello))
    assert total == len(requests) * 15
    golden("restaurant", folder, "report.json", "report.md")


def test_an_assistant_that_reserves_a_table_before_it_knows_when_fails(tmp_path):
    def hasty(request):
        if "table" in request.prompt and not results_of_turn(request):
            return Reply(tool_calls=[("Tables-reserve", {"guests": 4, "time": "20:00"})])
        return answer(request)

    ran, _ = run_example(tmp_path / "restaurant", hasty)

    assert ran.code == 1, ran.stdout + ran.stderr
    assert "no tool may be called, but Tables-reserve was" in ran.stdout
