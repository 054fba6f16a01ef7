"""The example of an agent of Semantic Kernel with two plugins, with the command line."""

import json
import shutil
from pathlib import Path

from fakes import FakeOpenAI, run_cli
from support.scripted_models import hasty_restaurant_model, restaurant_model

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "restaurant"


def run_example(folder, model):
    """Return the outcome of the command, and the requests that the model got."""
    shutil.copytree(EXAMPLE, folder)
    with FakeOpenAI(model) as server:
        ran = run_cli(
            "test", "agent.yaml", "-o", "report.json", "-o", "report.md",
            cwd=folder, env={"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "not-a-real-key"},
        )  # fmt: skip
        return ran, server.requests


def test_the_assistant_uses_both_plugins_and_the_golden_report_shows_how(tmp_path, golden):
    folder = tmp_path / "restaurant"

    ran, requests = run_example(folder, restaurant_model)

    assert ran.code == 0, ran.stdout + ran.stderr
    price, table, hello = json.loads((folder / "report.json").read_text())["results"]
    assert price["tool_invocations"][0]["result"] == 9.5
    assert [len(turn["tool_invocations"]) for turn in table["turns"]] == [0, 1]
    assert hello["tool_invocations"] == []
    total = sum(one["token_usage"]["total_tokens"] for one in (price, table, hello))
    assert total == len(requests) * 15
    golden("restaurant", folder, "report.json", "report.md")


def test_an_assistant_that_reserves_a_table_before_it_knows_when_fails(tmp_path):
    ran, _ = run_example(tmp_path / "restaurant", hasty_restaurant_model)

    assert ran.code == 1, ran.stdout + ran.stderr
    assert "no tool may be called, but Tables-reserve was" in ran.stdout
