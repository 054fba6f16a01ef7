"""The example of three agents that hand over to each other, with the command line."""

import json
import shutil
from pathlib import Path

from fakes import FakeOpenAI, Reply, run_cli
from support.frameworks import results_of_turn

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "handoff"


def answer(request):
    """What the models of the three agents say; each is known by the tools that it is offered."""
    tools, prompt = request.tools, request.prompt
    done = [one for one in results_of_turn(request) if one.startswith("order ")]
    if "Thank" in prompt:
        return "You are welcome."
    if done:
        return f"Your {done[-1]}."
    if "Refunds-refund" in tools:
        return Reply(tool_calls=[("Refunds-refund", {"order_id": "8"})])
    if "Orders-lookup_order" in tools and "money" not in prompt:
        return Reply(tool_calls=[("Orders-lookup_order", {"order_id": "7"})])
    handing_over = next(one for one in tools if "-transfer_to_" in one)
    return Reply(tool_calls=[(handing_over, {})])


def test_the_three_agents_hand_over_and_the_golden_report_shows_who_spoke(tmp_path, golden):
    folder = tmp_path / "handoff"
    shutil.copytree(EXAMPLE, folder)
    with FakeOpenAI(answer) as server:
        ran = run_cli(
            "test", "agent.yaml", "-o", "report.json", "-o", "report.md",
            cwd=folder, env={"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "not-a-real-key"},
        )  # fmt: skip

    assert ran.code == 0, ran.stdout
    order, refund = json.loads((folder / "report.json").read_text())["results"]
    assert order["agents"] == ["triage", "orders"]
    assert [(one["agent"], one["name"]) for one in order["tool_invocations"]] == [
        ("triage", "Handoff-transfer_to_orders"),
        ("orders", "Orders-lookup_order"),
    ]
    assert order["token_usage"]["total_tokens"] == 3 * 15
    assert order["evidence"]["tool_calls"] == "adapter"
    assert [turn["agents"] for turn in refund["turns"]] == [
        ["triage", "orders", "refunds"],
        ["triage"],
    ]
    golden("handoff", folder, "report.json", "report.md")
