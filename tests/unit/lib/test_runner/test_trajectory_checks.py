"""Checks of the order, the number, the results and the agents of tool calls."""

import pytest

from holodeck.lib.checks.matching import Trajectory
from holodeck.lib.checks.tool_checks import check_tools
from holodeck.models.results.evidence import evidence
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import NO_RESULT, ToolInvocation

KNOWN, PARTLY = evidence(tool_calls="backend", agents="backend"), evidence()
"""All calls and agents are known; only those that are given are."""


def call(name, args=None, *, result="done", error=None, agent=None, unknown=()):
    return ToolInvocation(
        name=name, args=args or {}, result=result, error=error, agent=agent, unknown=list(unknown)
    )


def calls(text):
    """`a b` as two calls."""
    return [call(name) for name in text.split()]


def rows(made, *, known=KNOWN, agents=(), tools=(), **expectations):
    case = TestCaseModel.model_validate({"input": "x", **expectations})
    return list(check_tools(case, Trajectory(made, known, agents, tools)))


def last(made, **expectations):
    """The verdict of the last row: True, False, or None for an error."""
    row = rows(made, **expectations)[-1]
    assert row.error is None or not row.passed
    return None if row.error else row.passed


ORDERS = {
    #          exact  in_order any_order subset superset
    "a b":     (True, True, True, True, True),
    "a x b":   (False, True, True, False, True),
    "b a":     (False, False, True, True, True),
    "b x a":   (False, False, True, False, True),
    "a":       (False, False, False, True, False),
    "":        (False, False, False, True, False),
    "a a b":   (False, True, True, False, True),
    "a b a":   (False, True, True, False, True),
    "x":       (False, False, False, False, False),
}  # fmt: skip
MODES = ("exact", "in_order", "any_order", "subset", "superset")


@pytest.mark.parametrize("mode", MODES)
def test_an_order_decides_about_the_expected_calls_a_and_b(mode):
    expected = [{"name": "a"}, {"name": "b"}]

    held = {made: last(calls(made), expected_tools=expected, tool_order=mode) for made in ORDERS}

    assert held == {made: row[MODES.index(mode)] for made, row in ORDERS.items()}


@pytest.mark.parametrize("mode", MODES)
def test_an_order_of_partly_known_calls_decides_only_what_further_calls_cannot_change(mode):
    expected = [{"name": "a"}, {"name": "b"}]
    decided_too_early = []

    for made in ORDERS:
        held = last(calls(made), known=PARTLY, expected_tools=expected, tool_order=mode)
        more = [f"{made} {one}".split() for one in ("", "a", "b", "x", "a b", "b a")]
        more += [f"{one} {made}".split() for one in ("a", "b", "x")]
        ends = {
            last(calls(" ".join(one)), expected_tools=expected, tool_order=mode) for one in more
        }
        if held is not None and ends != {held}:
            decided_too_early.append(made)

    assert decided_too_early == []


@pytest.mark.parametrize("mode", ["in_order", "any_order", "superset"])
def test_known_calls_that_meet_an_order_do_so_whatever_else_was_called(mode):
    assert last(calls("a b"), known=PARTLY, expected_tools=["a", "b"], tool_order=mode)


@pytest.mark.parametrize(("mode", "made"), [("exact", "b a"), ("exact", "x"), ("subset", "x")])
def test_a_known_call_too_many_fails_an_order_whatever_else_was_called(mode, made):
    held = last(calls(made), known=PARTLY, expected_tools=["a", "b"], tool_order=mode)

    assert held is False


def test_true_is_the_same_as_in_order():
    made = calls("a x b")

    written = [rows(made, expected_tools=["a", "b"], tool_order=one) for one in (True, "in_order")]

    assert written[0] == written[1]
    assert written[0][-1].expectation == "order: a → b"


@pytest.mark.parametrize("mode", ["any_order", "superset"])
def test_every_expected_call_needs_a_call_of_its_own_and_a_specific_one_comes_first(mode):
    expected = [{"name": "get"}, {"name": "get", "args": {"id": 1}}]

    both = [call("get", {"id": 1}), call("get", {"id": 2})]
    assert last(both, expected_tools=expected, tool_order=mode)
    assert last(both[:1], expected_tools=expected, tool_order=mode) is False


@pytest.mark.parametrize(
    ("mode", "made", "held"),
    [
        ("exact", "a a b", True),
        ("exact", "a b", False),
        ("in_order", "a x a b", True),
        ("in_order", "a b a", False),
        ("any_order", "a b a", True),
        ("any_order", "a b", False),
        ("subset", "b a a", True),
        ("subset", "a a a", False),
    ],
)
def test_an_entry_with_a_count_stands_for_so_many_calls(mode, made, held):
    expected = [{"name": "a", "count": 2}, {"name": "b"}]

    assert last(calls(made), expected_tools=expected, tool_order=mode) is held


def test_a_huge_count_is_compared_at_once():
    expected = [{"name": "a", "count": 10**12}]

    for mode in MODES:
        held = last(calls("a"), expected_tools=expected, tool_order=mode)
        assert held is (mode == "subset")


def test_a_subset_allows_the_expected_calls_and_requires_none():
    [row] = rows(calls("b"), expected_tools=["a", "b"], tool_order="subset")

    assert (row.expectation, row.passed) == ("subset of: a, b", True)


def test_an_order_says_what_was_called_instead():
    row = rows(calls("b a"), expected_tools=["a", "b"], tool_order="exact")[-1]

    assert row.expectation == "exact order: a → b"
    assert row.reason == "the calls are not exactly a → b; called: b, a"


@pytest.mark.parametrize(
    ("made", "known", "held"),
    [("a a", KNOWN, True), ("a a a", KNOWN, False), ("a", PARTLY, None), ("a a a", PARTLY, False)],
)
def test_a_maximum_of_calls_is_exceeded_by_known_calls_and_kept_only_by_all(made, known, held):
    assert last(calls(made), known=known, max_tool_calls=2) is held


def test_too_many_calls_are_listed():
    [row] = rows(calls("a b"), max_tool_calls=1)

    assert row.expectation == "at most 1 tool call"
    assert row.reason == "2 tool calls instead of at most 1: a, b"


@pytest.mark.parametrize(
    ("made", "held"),
    [
        ([call("a", {"x": 1}), call("a", {"x": 2})], True),
        ([call("a", {"x": 1}), call("b", {"x": 1})], True),
        ([call("a", {"x": 1, "y": 2}), call("b"), call("a", {"y": 2, "x": 1.0})], False),
        ([call("a", {"x": 1}), call("a", {"x": True})], True),
        ([call("a"), call("a")], False),
        ([call("a", unknown=["args"]), call("a", unknown=["args"])], None),
        ([call("a", unknown=["args"]), call("b", unknown=["args"])], True),
    ],
    ids=[
        "other arguments", "other tool", "equal", "one is not true", "no arguments",
        "unknown arguments", "unknown arguments of different tools",
    ],
)  # fmt: skip
def test_a_call_is_repeated_by_its_name_and_equal_arguments(made, held):
    assert last(made, no_repeated_calls=True) is held


def test_known_calls_that_repeat_fail_and_others_may_hide_a_repetition():
    assert last(calls("a a"), known=PARTLY, no_repeated_calls=True) is False
    assert last(calls("a b"), known=PARTLY, no_repeated_calls=True) is None


@pytest.mark.parametrize(
    ("spoke", "held"),
    [
        (["triage", "billing"], True),
        (["billing", "triage"], False),
        (["triage"], False),
        (["triage", "billing", "triage"], False),
        (["Triage", "billing"], False),
        ([], False),
    ],
)
def test_handoffs_are_the_agents_that_spoke_in_exactly_this_order(spoke, held):
    assert last([], agents=spoke, handoffs=["triage", "billing"]) is held


@pytest.mark.parametrize(
    ("spoke", "held"),
    [([], None), (["billing"], None), (["triage", "billing"], None), (["sales"], False),
     (["billing", "triage"], False)],
)  # fmt: skip
def test_agents_of_some_turns_fail_handoffs_only_where_no_other_turn_could_mend_it(spoke, held):
    assert last([], known=PARTLY, agents=spoke, handoffs=["triage", "billing"]) is held


def test_unknown_agents_are_an_error_that_says_what_to_return():
    [row] = rows([], known=evidence(tool_calls="backend"), handoffs=["triage"])

    assert "agents that spoke are unknown; return {'response': …, 'agents': […]}" in row.error


SHIPPED = "order 7 is shipped"


@pytest.mark.parametrize(
    ("made", "wanted", "held"),
    [
        (call("a", result=SHIPPED), {"result": SHIPPED}, True),
        (call("a", result=SHIPPED), {"result": "shipped"}, False),
        (call("a", result=SHIPPED), {"result": {"contains": "shipped"}}, True),
        (call("a", result=SHIPPED), {"result": {"contains": "Shipped"}}, False),
        (call("a", result={"to": "Zoë"}), {"result": {"contains": '"Zoë"'}}, True),
        (call("a", result={"to": "Zoë"}), {"result": {"to": "Zoë"}}, True),
        (call("a", result="7"), {"result": {"number": 7}}, True),
        (call("a", result=SHIPPED), {"result": {"regex": "order \\d .*"}}, True),
        (call("a", result=None), {"result": {"equals": None}}, True),
        (call("a", result=""), {"result": {"equals": None}}, False),
        (call("a", result=None, error=NO_RESULT), {"result": {"contains": "x"}}, None),
        (call("a", result="no x", error="no x"), {"result": {"contains": "x"}}, False),
        (call("a", error="no x"), {"result": {"contains": "x"}, "error": True}, True),
        (call("a", error="no y"), {"result": {"contains": "x"}, "error": True}, False),
        (call("a", result="x"), {"result": {"contains": "x"}, "error": True}, False),
        (call("a"), {"error": False}, True),
        (call("a"), {"error": True}, False),
        (call("a", error="broken"), {"error": False}, False),
        (call("a", error="broken"), {"error": True}, True),
        (call("a", error=NO_RESULT), {"error": False}, None),
        (call("a", error=NO_RESULT), {"error": True}, None),
        (call("a", unknown=["error"]), {"error": False}, None),
        (call("a", unknown=["error"], error="broken"), {"error": True}, True),
        (call("a", unknown=["error"]), {"result": "done"}, True),
        (call("a", agent="billing"), {"agent": "billing"}, True),
        (call("a", agent="triage"), {"agent": "billing"}, False),
        (call("a"), {"agent": "billing"}, None),
        (call("a", unknown=["args"]), {"args": {"x": 1}}, None),
        (call("a", unknown=["args"], agent="t"), {"args": {"x": 1}, "agent": "b"}, False),
    ],
)
def test_a_call_meets_an_expectation_only_with_what_is_known_of_it(made, wanted, held):
    assert last([made], expected_tools=[{"name": "a", **wanted}]) is held
    for mode in MODES:
        checked = last([made], expected_tools=[{"name": "a", **wanted}], tool_order=mode)
        assert checked is held


def test_a_call_of_which_more_is_known_decides():
    wanted = {"name": "a", "result": "done"}
    blind = call("a", error=NO_RESULT)

    assert last([blind, call("a")], expected_tools=[wanted])
    assert last([blind, call("a", result="no")], expected_tools=[wanted]) is None


@pytest.mark.parametrize(
    ("made", "held"),
    [
        (["done", "done"], True),
        (["done"], False),
        (["done", "done", "done"], False),
        (["done", "?"], None),
        (["done", "done", "?"], None),
        (["?"], False),
        (["no", "?", "?"], None),
        (["done", "done", "done", "?"], False),
    ],
)
def test_a_count_of_calls_with_a_result_is_decided_as_far_as_results_are_known(made, held):
    found = [call("a", error=NO_RESULT) if one == "?" else call("a", result=one) for one in made]

    assert last(found, expected_tools=[{"name": "a", "result": "done", "count": 2}]) is held


def test_a_row_says_what_is_expected_of_the_call_and_what_was_found():
    wanted = {"name": "refund", "args": {"id": 7}, "agent": "billing", "error": False}
    wanted |= {"result": {"contains": "ok"}}
    made = call("refund", {"id": 7}, agent="billing", result="rejected")

    [row] = rows([made], expected_tools=[wanted])

    assert row.expectation == "refund(id=7) by billing without error → *ok*"
    assert row.reason == "'refund': its result is 'rejected', not *ok*"


def test_a_pattern_that_takes_too_long_is_an_error_of_its_row():
    wanted = {"name": "a", "args": {"x": {"regex": "(a|aa)+$"}}}

    row, other = rows(
        [call("a", {"x": "a" * 60 + "!"})], expected_tools=[wanted], forbidden_tools=["b"]
    )

    assert "takes longer than" in row.error
    assert other.passed
