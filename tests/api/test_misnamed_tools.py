"""A call of a tool with nearly a forbidden name is not decided; the error says what to write."""

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
    "called",
    [
        "shop_delete_order", "shop:delete_order", "shop/delete_order", "a-b-delete_order",
        "delete_order_v2", "Delete_Order", "deleteOrder", "delete-order",
        "functions.P-delete_order",
    ],
)  # fmt: skip
def test_a_call_of_nearly_a_forbidden_tool_is_not_decided(tmp_path, called):
    ran = run(tmp_path, ["delete_order"], called=called)

    assert ran.code == 4
    [result] = json.loads((tmp_path / "report.json").read_text())["results"]
    [row] = result["tool_checks"]
    assert result["outcome"] == "metric_error"
    assert f"'delete_order' is forbidden, and {called!r} was called" in row["error"]
    assert f"{{name: 'delete_order', allow: [{called!r}]}}" in row["error"]


@pytest.mark.parametrize(
    "name",
    [
        "DELETE_ORDER", "delete-order", "deleteOrder", "functions.delete_order", "delet_order",
        "delete_orders", "delete_odrer", "pay-delete_order", "delete_order_call",
    ],
)  # fmt: skip
def test_a_misspelt_forbidden_tool_is_not_decided_when_it_was_called(tmp_path, name):
    ran = run(tmp_path, [name])

    assert ran.code == 4
    assert f"{name!r} is forbidden, and 'delete_order' was called" in ran.stdout


def test_a_misspelt_forbidden_tool_of_a_turn_is_not_decided(tmp_path):
    turn = {"input": "look", "forbidden_tools": ["Delete_Order"]}

    ran = run(tmp_path, [], case={"turns": [turn]})

    assert ran.code == 4
    assert "'Delete_Order' is forbidden, and 'delete_order' was called" in ran.stdout


@pytest.mark.parametrize(
    ("forbidden", "code"),
    [
        ("*delete_order", 1),
        ({"name": "*order"}, 1),
        ({"name": "delete_order", "allow": ["shop_delete_order"]}, 0),
        ({"name": "*delete_order", "allow": ["shop_delete_order"]}, 0),
        ({"name": "*delete_order", "allow": ["pay_delete_order"]}, 1),
        ({"name": "delete_order", "allow": ["delete_order"]}, 2),
        ({"name": "delete_order", "allow": ["a, b"]}, 2),
        ("delete_order?", 2),
    ],
    ids=str,
)
def test_a_pattern_forbids_all_of_its_names_and_allow_makes_exceptions(tmp_path, forbidden, code):
    ran = run(tmp_path, [forbidden], called="shop_delete_order")

    assert ran.code == code


@pytest.mark.parametrize(
    "name", ["pay", "update_order", "delete_file", "selete_order", "delete_order_history", "order"]
)
def test_another_tool_that_is_forbidden_is_no_slip(tmp_path, name):
    called = "delete_orders_list" if name == "order" else "delete_order"
    ran = run(tmp_path, [name], called=called)

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
def test_a_misspelt_forbidden_tool_is_not_decided_when_it_was_called_with_a_prefix(tmp_path, name):
    ran = run(tmp_path, [name], called="Shop-delete_order")

    assert ran.code == 4
    assert f"{name!r} is forbidden, and 'Shop-delete_order' was called" in ran.stdout


@pytest.mark.parametrize(
    "called", ["Shop-delete_order", "shop.delete_order", "mcp__s__delete_order"]
)
def test_a_forbidden_tool_that_is_called_with_a_prefix_fails(tmp_path, called):
    ran = run(tmp_path, ["delete_order"], called=called)

    assert ran.code == 1
    assert f"'delete_order' is forbidden, but was called as {called!r}" in ran.stdout


def test_a_forbidden_agent_that_is_handed_to_is_not_decided(tmp_path):
    ran = run(tmp_path, ["billing"], called="transfer_to_billing")

    assert ran.code == 4
    assert "'billing' is forbidden, and 'transfer_to_billing' was called" in ran.stdout
