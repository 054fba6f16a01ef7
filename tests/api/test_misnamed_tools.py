"""A forbidden tool that was called is told of, although a slip in its name lets the check pass."""

import json

import pytest

from fakes import run_cli

BOT = """
def answer(text):
    return {"text": "done", "tool_calls": [{"name": "delete_order", "arguments": {}}]}
"""


def run(tmp_path, forbidden, case=None, called="delete_order"):
    case = case or {"name": "looks only", "input": "look", "forbidden_tools": forbidden}
    (tmp_path / "bot.py").write_text(BOT.replace("delete_order", called))
    (tmp_path / "agent.yaml").write_text(
        f'name: a\nbackend: "bot:answer"\ntest_cases: {json.dumps([case])}\n'
    )
    return run_cli("test", "-o", "report.json", cwd=tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "DELETE_ORDER", "delete-order", "deleteOrder", "functions.delete_order", "delet_order",
        "delete_orders", "delete_odrer", "delete_order\u200b", "pay-delete_order",
    ],
)  # fmt: skip
def test_a_misspelt_forbidden_tool_is_told_of_when_it_was_called(tmp_path, name):
    ran = run(tmp_path, [name])

    assert f"the tool {name!r} is forbidden, and 'delete_order' was called" in ran.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert len(report["notes"]) == 1


def test_a_misspelt_forbidden_tool_of_a_turn_is_told_of(tmp_path):
    turn = {"input": "look", "forbidden_tools": ["Delete_Order"]}

    ran = run(tmp_path, [], case={"turns": [turn]})

    assert "'Delete_Order' is forbidden, and 'delete_order' was called" in ran.stderr


@pytest.mark.parametrize("name", ["pay", "update_order", "delete_file", "selete_order"])
def test_another_tool_that_is_forbidden_is_no_slip(tmp_path, name):
    ran = run(tmp_path, [name])

    assert (ran.code, ran.stderr) == (0, "")


def test_a_tool_that_the_agent_has_is_meant_as_it_is_written(agent_dir):
    agent_dir.server.reply(tool_calls=[("delete_order", {"x": "9"})]).reply("done")
    agent_dir.write("tools.py", "def f(x: str) -> str:\n    return x\n")
    tool = {"type": "function", "file": "tools.py", "function": "f"}
    agent_dir.write_agent(
        backend="chat",
        tools=[tool | {"name": name} for name in ("delete_order", "delete_orders")],
        test_cases=[{"input": "look", "forbidden_tools": ["delete_orders"]}],
    )

    ran = agent_dir.run("test")

    assert (ran.code, ran.stderr) == (0, "")


@pytest.mark.parametrize("name", ["Delete_Order", "delete_orders", "delete-order"])
def test_a_misspelt_forbidden_tool_is_told_of_when_it_was_called_with_a_prefix(tmp_path, name):
    ran = run(tmp_path, [name], called="Shop-delete_order")

    assert f"the tool {name!r} is forbidden, and 'Shop-delete_order' was called" in ran.stderr


@pytest.mark.parametrize(
    "called", ["Shop-delete_order", "shop.delete_order", "mcp__s__delete_order"]
)
def test_a_forbidden_tool_that_is_called_with_a_prefix_fails(tmp_path, called):
    ran = run(tmp_path, ["delete_order"], called=called)

    assert ran.code == 1
    assert f"'delete_order' is forbidden, but was called as {called!r}" in ran.stdout


def test_a_forbidden_agent_that_is_handed_to_is_told_of(tmp_path):
    ran = run(tmp_path, ["billing"], called="transfer_to_billing")

    assert "'billing' is forbidden, and 'transfer_to_billing' was called" in ran.stderr
