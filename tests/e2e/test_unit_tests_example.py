"""Agents without a model and without tools: the example, and many cases however they run."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from fakes import run_cli

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "unit-tests"
TOOLS = """
from pathlib import Path


def get_order(id: int) -> str:
    Path("ran").touch()
    return f"order {id} was sent"
"""
CASES = 200


@pytest.mark.parametrize("file", ["agent.yaml", "agent_framework.yaml"])
def test_the_example_needs_no_model_no_key_and_no_tool(tmp_path, golden, file):
    folder = shutil.copytree(EXAMPLE, tmp_path / "unit-tests")

    ran = run_cli("test", file, "-o", "report.json", cwd=folder)

    assert ran.code == 0, ran.stdout + ran.stderr
    results = json.loads((folder / "report.json").read_text())["results"]
    assert [request["faults"] for request in results[1]["handled_requests"]] == [["status"], []]
    calls = [call for result in results for call in result["tool_invocations"]]
    assert {call["stub"]["tool_ran"] for call in calls} == {False}
    assert len(calls) == 5
    if file == "agent.yaml":
        golden("unit-tests", folder, "report.json")


def test_sealed_cases_run_no_tool_and_end_alike_however_they_run(tmp_path):
    (tmp_path / "tools.py").write_text(TOOLS)
    agent = {
        "name": "shop",
        "backend": "chat",
        "model": {"provider": "scripted"},
        "instructions": {"inline": "Be brief."},
        "tools": [
            {"type": "function", "name": "get_order", "file": "tools.py", "function": "get_order"}
        ],
        "tools_in_test": "sealed",
        "test_cases": [
            {
                "name": f"order {number}",
                "input": f"Where is order {number}?",
                "stubs": {"get_order": [{"when": {"id": number}, "returns": f"lost {number}"}]},
                "model_replies": [
                    {"tool_calls": [{"get_order": {"id": number}}]},
                    {"text": f"It is lost: {number}. Sorry for order {number}."},
                ],
                "model_faults": [{"call": 2, "cut_off": True}],
                "expected_tools": ["get_order"],
                "evaluations": [{"metric": "contains", "value": f"lost: {number}"}],
            }
            for number in range(1, CASES + 1)
        ],
    }
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(agent))

    reports = []
    for options in (["-j", "1"], ["-j", "50"], ["-j", "50", "--workers", "2"]):
        ran = run_cli("test", "agent.yaml", *options, "-o", "report.json", cwd=tmp_path)
        assert ran.code == 0, ran.stdout + ran.stderr
        report = json.loads((tmp_path / "report.json").read_text())
        reports.append([comparable(result) for result in report["results"]])

    assert len(reports[0]) == CASES
    assert reports[0] == reports[1] == reports[2]
    assert not (tmp_path / "ran").exists()


def comparable(result):
    """What of a result must be the same each time."""
    calls = [{**call, "duration_ms": None} for call in result["tool_invocations"]]
    keys = ("test_name", "outcome", "agent_response", "handled_requests", "stubbed_calls")
    return [calls, *(result[key] for key in keys)]
