"""A Semantic Kernel agent and its Agent Framework twin, compared on the same test cases."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from fakes import Reply, run_cli
from support.checks import assert_plain

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "migration"


def answer(request):
    """Call the tool that the agent offers where a user names an order, then tell its result."""
    last = request.messages[-1]
    if last["role"] == "tool":
        return Reply(f"Order {last['content']}.")
    tools = request.body.get("tools")
    if "order 7" in request.prompt and tools:
        return Reply(tool_calls=[(tools[0]["function"]["name"], {"order_id": "7"})])
    return Reply("It is paid, I think.")


@pytest.fixture
def example(tmp_path, fake_openai):
    """A copy of the example whose agents run in processes of the tests' own interpreter.

    `scripts/frameworks migration` names others, with one of the frameworks each.
    """
    folder = tmp_path / "migration"
    shutil.copytree(EXAMPLE, folder)
    for name in ("old", "new"):
        python = os.environ.get(f"{name.upper()}_PYTHON")
        (folder / f".venv-{name}").symlink_to(Path(python).parents[1] if python else sys.prefix)
    fake_openai.otherwise(answer)
    return folder


def change(file, before, after):
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


@pytest.fixture
def compare(example, fake_openai):
    """Compare the agents of the example; return the pairs by the names of their cases."""

    def run(*args, against="new.yaml"):
        env = {"OPENAI_BASE_URL": fake_openai.url, "OPENAI_API_KEY": "not-a-real-key"}
        ran = run_cli(
            "test", "old.yaml", "--against", against, "--fail-on", "regression", "-o", "r.json",
            "-o", "r.md", *args, cwd=example, env=env,
        )  # fmt: skip
        assert_plain(ran)
        pairs = json.loads((example / "r.json").read_text())["pairs"]
        return ran, {pair["name"]: pair for pair in pairs}

    return run


@pytest.mark.parametrize("in_processes", [True, False], ids=["processes", "one process"])
def test_a_faithful_twin_has_the_same_tool_calls_and_the_golden_reports(
    compare, example, golden, in_processes
):
    if not in_processes:
        for name in ("old", "new"):
            file = example / f"{name}.yaml"
            head, _, rest = file.read_text().partition("backend:\n")
            _, _, cases = rest.partition("test_cases:")
            backend = f'{head}backend: "{name}:agent"\n'
            file.write_text(f"{backend}test_cases:{cases}" if cases else backend)

    ran, pairs = compare()

    assert ran.code == 0, ran.stdout
    assert [pair["verdict"] for pair in pairs.values()] == ["both"] * 3
    assert [pair["trajectories"]["state"] for pair in pairs.values()] == ["same"] * 3
    assert {pair["trajectories"]["unknown_results"] for pair in pairs.values()} == {0}
    assert pairs["looks the order up"]["tokens"] == {"first": 30, "second": 30}
    if in_processes:
        golden("migration", example, "r.json", "r.md")


def test_a_twin_without_its_tool_fails_the_comparison_at_that_step(compare, example):
    change(example / "new.py", "tools=[lookup_order],", "")

    ran, pairs = compare()

    assert ran.code == 1
    assert pairs["looks the order up"]["verdict"] == "only_first"
    assert "parted at turn 1, call 1: A called OrderPlugin-lookup_order(order_id='7')" in ran.stdout


def test_a_tool_that_was_changed_on_the_way_is_found_by_its_result(compare, example):
    change(example / "new.py", "is paid", "is payed")

    ran, pairs = compare("-k", "looks")

    assert pairs["looks the order up"]["trajectories"]["divergence"]["kind"] == "result"
    assert "B lookup_order(order_id='7') returned '7 is payed'" in ran.stdout
