"""Names of tools as frameworks give them, compared with names in test cases."""

import pytest

from holodeck.lib.checks.matching import Trajectory
from holodeck.lib.checks.tool_checks import check_tools
from holodeck.lib.support.tool_names import is_forbidden, tools_named, unprefixed
from holodeck.models.results.evidence import evidence
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import ToolInvocation

PREFIXED = ["OrderPlugin-pay", "shop.pay", "mcp__shop__pay", "a.b.pay", "Plugin-shop__pay"]
NEAR = [
    "shop_pay", "shop:pay", "shop/pay", "shopPay", "get-all-pay", "mcp__shop__get-pay", "pay_",
    "PAY", "OrderPlugin-Pay", "-pay", "__pay", ".pay", "transfer_to_pay", "pay_v2", "pay2",
    "payV2", "shop_pay_v1.2", "pay_tool",
]  # fmt: skip
OTHER = ["repay", "pay-OrderPlugin", "pay_history", "prepay_all", "say", "play", "payment"]


def row_of(called, *, tools=(), **expectations):
    case = TestCaseModel.model_validate({"input": "x", **expectations})
    calls = [ToolInvocation(name=name) for name in called]
    *_, row = check_tools(case, Trajectory(calls, evidence(tool_calls="backend"), tools=tools))
    return row


@pytest.mark.parametrize("name", PREFIXED)
def test_a_name_with_the_prefix_of_a_framework_is_the_tool(name):
    assert "pay" in unprefixed(name)
    row = row_of([name], expected_tools=[{"name": "pay"}])
    assert (row.passed, row.reason) == (True, f"'pay' matches {name!r}")


@pytest.mark.parametrize("name", [*NEAR, *OTHER])
def test_a_name_that_only_contains_it_is_another_tool_where_one_is_expected(name):
    assert not row_of([name], expected_tools=[{"name": "pay"}]).passed


@pytest.mark.parametrize("name", NEAR)
def test_a_call_of_nearly_a_forbidden_name_is_not_decided(name):
    row = row_of([name], forbidden_tools=["pay"])

    assert not row.passed
    assert row.error.startswith(f"'pay' is forbidden, and {name!r} was called")


@pytest.mark.parametrize("name", OTHER)
def test_a_call_of_another_name_is_not_forbidden(name):
    assert row_of([name], forbidden_tools=["pay"]).passed


@pytest.mark.parametrize(
    ("name", "called", "is_decided"),
    [
        ("web_search_call", "web_search", False),
        ("shop_delete_order", "delete_order", False),
        ("functions.delete_order", "delete_order", False),
        ("delete_order_v1", "delete_order", False),
        ("delete_orders", "delete_order", False),
        ("delete_*", "shop_delete_order", False),
        ("delete_order_v1", "delete_order_v2", True),
        ("delete_account", "delete_order", True),
        ("cancel_order", "order", True),
        ("get_order", "get_order_history", True),
        ("get_order_history", "get_order", True),
        ("get_top_10", "get_top_20", True),
        ("delete_*", "undelete_order", True),
    ],
)
def test_a_further_word_makes_another_tool_and_a_prefix_does_not(name, called, is_decided):
    row = row_of([called], forbidden_tools=[name])

    assert (row.passed, row.error is None) == (is_decided, is_decided)


@pytest.mark.parametrize(
    ("called", "suggestion"),
    [("shop_pay", "*pay"), ("pay_v2", "pay*"), ("PAY", "PAY"), ("shop_PAY", "shop_PAY")],
)
def test_what_the_error_suggests_decides_the_check(called, suggestion):
    row = row_of([called], forbidden_tools=["pay"])

    hint = f"write {suggestion!r} to forbid it, or {{name: 'pay', allow: [{called!r}]}} if"
    assert hint in row.error
    forbidden = row_of([called], forbidden_tools=[suggestion])
    assert (forbidden.passed, forbidden.error) == (False, None)
    assert row_of([called], forbidden_tools=[{"name": "pay", "allow": [called]}]).passed


def test_what_is_allowed_allows_nothing_else():
    allowed = [{"name": "*pay", "allow": ["pre_pay"]}]

    assert row_of(["pre_pay", "Shop-pre_pay", "repaid"], forbidden_tools=allowed).passed
    assert row_of(["shop_pay"], forbidden_tools=allowed).error is None
    assert not row_of(["pre_pay", "shop_pay"], forbidden_tools=allowed).passed
    assert row_of(["PAY"], forbidden_tools=[{"name": "pay", "allow": ["a_pay"]}]).error


def test_an_expected_tool_of_nearly_a_forbidden_name_is_another_tool():
    expected = [{"name": "shop_pay"}]

    assert row_of(["shop_pay"], expected_tools=expected, forbidden_tools=["pay"]).passed
    assert row_of(["PAY"], expected_tools=expected, forbidden_tools=["pay"]).error


@pytest.mark.parametrize("tools", [["pay", "shop_pay"], ["Shop-pay", "shop_pay"]])
def test_a_forbidden_tool_that_the_agent_has_is_no_other(tools):
    assert row_of(["shop_pay"], tools=tools, forbidden_tools=["pay"]).passed


def test_a_near_name_is_another_tool_for_checks_that_no_other_tool_is_called():
    expected = [{"name": "pay", "count": 1}]

    assert not row_of(["pay", "shop_pay"], expected_tools=expected, only_expected_tools=True).passed
    assert not row_of(["pay_v2"], expected_tools=[{"name": "pay"}], tool_order="subset").passed


def test_the_whole_name_of_a_tool_is_no_prefixed_one_of_another():
    assert not row_of(["OrderPlugin-pay"], expected_tools=[{"name": "ShopPlugin-pay"}]).passed
    assert not row_of(["pay"], expected_tools=[{"name": "OrderPlugin-pay"}]).passed


@pytest.mark.parametrize(
    ("called", "tools"),
    [
        (["A-pay", "B-pay"], []),
        (["A-pay"], ["A-pay", "B-pay"]),
        (["A-pay"], ["mcp__b__pay"]),
    ],
)
@pytest.mark.parametrize(
    "checks",
    [
        {},
        {"tool_order": "exact"},
        {"tool_order": "subset"},
        {"only_expected_tools": True},
    ],
    ids=str,
)
def test_a_name_that_several_tools_may_have_is_an_error_that_lists_them(called, tools, checks):
    row = row_of(called, tools=tools, expected_tools=[{"name": "pay"}], **checks)

    assert not row.passed
    first, second = dict.fromkeys([*tools, *called])
    assert row.error == (
        f"'pay' is ambiguous: it may be {first!r} or {second!r}; write the whole name"
    )


def test_a_tool_of_exactly_that_name_is_meant_and_no_other():
    assert tools_named("pay", ["A-pay", "pay", "B-pay"]) == ["pay"]
    assert not row_of(["A-pay"], tools=["pay", "A-pay"], expected_tools=[{"name": "pay"}]).passed
    assert row_of(["A-pay"], tools=["pay", "A-pay"], forbidden_tools=["pay"]).passed


@pytest.mark.parametrize("name", PREFIXED)
def test_a_forbidden_name_forbids_the_tool_with_its_prefix(name):
    assert is_forbidden(name, "pay")
    row = row_of([name], forbidden_tools=["pay"])
    assert (row.passed, row.reason) == (False, f"'pay' is forbidden, but was called as {name!r}")


def test_a_forbidden_name_forbids_every_tool_that_may_have_it():
    assert not row_of(["A-pay"], tools=["A-pay", "B-pay"], forbidden_tools=["pay"]).passed
    assert not row_of(["pay", "A-pay"], forbidden_tools=["pay"]).passed


def test_a_part_of_a_name_is_compared_with_the_whole_name():
    wanted = [{"name": "pay", "match": "substring"}]
    assert row_of(["shop_pay", "A-pay"], expected_tools=wanted).passed


@pytest.mark.parametrize(
    ("called", "tools", "name", "hint"),
    [
        (["OrderPlugin-lookup_order"], [], "lookup_orders", "lookup_order"),
        (["transfer_to_billing"], [], "billing", "transfer_to_billing"),
        (["shop_pay"], [], "pay", "shop_pay"),
        ([], ["Shop-refund"], "refnd", "refund"),
        (["weather"], ["refund"], "pay", None),
    ],
)
def test_a_near_miss_says_which_tool_may_be_meant(called, tools, name, hint):
    row = row_of(called, tools=tools, expected_tools=[{"name": name}])

    assert not row.passed
    was = ", ".join(called) or "nothing"
    ending = "" if hint is None else f"; did you mean {hint!r}?"
    assert row.reason == f"no call of {name!r}; called: {was}{ending}"
