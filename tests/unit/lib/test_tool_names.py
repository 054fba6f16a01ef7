"""Names of tools as frameworks give them, compared with names in test cases."""

import pytest

from holodeck.lib.test_runner.tool_checks import check_tools
from holodeck.lib.tool_names import is_forbidden, tools_named, unprefixed
from holodeck.models.evidence import evidence
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import ToolInvocation

PREFIXED = ["OrderPlugin-pay", "shop.pay", "mcp__shop__pay", "a.b.pay", "Plugin-shop__pay"]
OTHER = [
    "shop_pay", "get-all-pay", "mcp__shop__get-pay", "repay", "pay_", "PAY", "OrderPlugin-Pay",
    "-pay", "__pay", ".pay", "pay-OrderPlugin", "transfer_to_pay",
]  # fmt: skip


def row_of(called, *, tools=(), **expectations):
    case = TestCaseModel.model_validate({"input": "x", **expectations})
    calls = [ToolInvocation(name=name) for name in called]
    *_, row = check_tools(case, calls, evidence("backend"), tools=tools)
    return row


@pytest.mark.parametrize("name", PREFIXED)
def test_a_name_with_the_prefix_of_a_framework_is_the_tool(name):
    assert "pay" in unprefixed(name)
    row = row_of([name], expected_tools=[{"name": "pay"}])
    assert (row.passed, row.reason) == (True, f"'pay' matches {name!r}")


@pytest.mark.parametrize("name", OTHER)
def test_a_name_that_only_ends_like_it_is_another_tool(name):
    assert not row_of([name], expected_tools=[{"name": "pay"}]).passed
    assert row_of([name], forbidden_tools=["pay"]).passed


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
