"""Expectations about tools."""

import pytest

from holodeck.errors import EvaluationError
from holodeck.lib.checks.matching import Trajectory, matches
from holodeck.lib.checks.tool_checks import check_tools
from holodeck.lib.test_runner.executor import validate_tool_calls
from holodeck.models.results.evidence import evidence
from holodeck.models.test_case import ArgMatcher, ExpectedTool, TestCaseModel
from holodeck.models.test_result import ToolInvocation


def called(name, **args):
    return ToolInvocation(name=name, args=args)


def checks(calls, **expectations):
    case = TestCaseModel.model_validate({"input": "x", **expectations})
    return list(check_tools(case, Trajectory(calls, evidence(tool_calls="backend"))))


@pytest.mark.parametrize(
    ("actual", "expected", "matched"),
    [
        (["vectorstore-search"], ["search"], True),
        (["search_tool", "fetch_data"], ["search", "fetch"], True),
        (["fetch"], ["search"], False),
        (["search"], ["Search"], False),
        (["search"], None, None),
        ([], ["search"], False),
        ([], [], True),
        (["search"], [], False),
    ],
)
def test_plain_names_match_by_substring(actual, expected, matched):
    assert validate_tool_calls(actual, expected) is matched


def test_nothing_expected_makes_no_row():
    assert checks([called("search")]) == []


def test_an_empty_expectation_forbids_every_call():
    [row] = checks([called("delete_db")], expected_tools=[])

    assert not row.passed
    assert "delete_db" in row.reason


def test_a_mapping_does_not_match_by_substring():
    [row] = checks([called("research_and_delete")], expected_tools=[{"name": "search"}])

    assert not row.passed
    assert "research_and_delete" in row.reason


def test_a_mapping_may_ask_for_substring():
    wanted = {"name": "search", "match": "substring"}

    [row] = checks([called("kb-search")], expected_tools=[wanted])

    assert row.passed


@pytest.mark.parametrize(
    ("times", "passed"), [(1, False), (2, True), (3, False)], ids=["fewer", "exact", "more"]
)
def test_a_count_is_exact(times, passed):
    calls = [called("search")] * times

    [row] = checks(calls, expected_tools=[{"name": "search", "count": 2}])

    assert row.passed is passed


def test_a_wrong_argument_is_named_with_what_was_found():
    [row] = checks(
        [called("weather", city="Rome")],
        expected_tools=[{"name": "weather", "args": {"city": "Paris"}}],
    )

    assert not row.passed
    assert "'city' is 'Rome', not 'Paris'" in row.reason


def test_a_missing_argument_is_named():
    [row] = checks(
        [called("weather")], expected_tools=[{"name": "weather", "args": {"city": "Paris"}}]
    )

    assert "'city' is missing" in row.reason


def test_a_forbidden_tool_fails_only_by_its_exact_name():
    allowed, forbidden = checks([called("delete_all")], forbidden_tools=["delete", "delete_all"])

    assert allowed.passed
    assert not forbidden.passed


@pytest.mark.parametrize(
    ("calls", "passed"),
    [(["a", "x", "b"], True), (["b", "a"], False), (["a"], False)],
    ids=["in order", "reversed", "incomplete"],
)
def test_the_order_of_tools(calls, passed):
    rows = checks([called(name) for name in calls], expected_tools=["a", "b"], tool_order=True)

    assert rows[-1].expectation == "order: a → b"
    assert rows[-1].passed is passed


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        (["kb-search", "get"], None),
        (["get", "kb-search", "get"], None),
        (["kb-search", "get", "delete_db"], "only expected tools may be called, but delete_db was"),
        (["kb-search", "get", "get_all"], "only expected tools may be called, but get_all was"),
    ],
    ids=["all of them", "one twice", "another one", "a longer name"],
)
def test_only_expected_tools_may_be_called_if_that_is_said(calls, reason):
    expected = ["search", {"name": "get"}]
    called_ones = [called(name) for name in calls]

    *_, row = checks(called_ones, expected_tools=expected, only_expected_tools=True)

    assert (row.expectation, row.reason) == ("no other tool call", reason)
    assert row.passed is (reason is None)
    assert all(one.passed for one in checks(called_ones, expected_tools=expected))


@pytest.mark.parametrize(
    ("wanted", "value", "fits"),
    [
        (1, 1.0, True),
        (1, True, False),
        (True, True, True),
        ("1", 1, False),
        ({"a": [1, 2.0]}, {"a": [1.0, 2]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"regex": "P.*s"}, "Paris", True),
        ({"regex": "P"}, "Paris", False),
        ({"regex": r"\d+"}, 42, True),
        ({"number": 3.14}, "3.14", True),
        ({"number": {"value": 100, "absolute_tolerance": 5}}, 104, True),
        ({"number": {"value": 100, "absolute_tolerance": 5}}, 106, False),
        ({"number": 1}, True, False),
        ({"number": 1}, "one", False),
        ({"fuzzy": "1,000"}, "1000", True),
        ({"fuzzy": "50%"}, 0.5, True),
        ({"fuzzy": "New York"}, " new york ", True),
        ({"fuzzy": "York"}, "New York", False),
        ({"equals": {"regex": "x"}}, {"regex": "x"}, True),
        ({"equals": None}, None, True),
        ({"other": 1}, {"other": 1}, True),
    ],
)
def test_argument_matchers(wanted, value, fits):
    expected = ExpectedTool(name="t", args={"a": wanted})

    assert matches(expected.matchers()["a"], value) is fits


def test_a_pattern_that_explodes_is_an_error_within_its_limit():
    with pytest.raises(EvaluationError, match="takes longer than 1 s"):
        matches(ArgMatcher(regex="(a|aa)+$"), "a" * 60 + "!")


@pytest.mark.parametrize(
    ("expected", "passed", "reason"),
    [
        ("memory", True, None),
        ("read_graph", True, None),
        ("memory-read_graph", True, None),
        ("mem", True, "'mem' is only a part of 'memory-read_graph'; write '{name: …}' for a whole"),
        ({"name": "memory", "match": "substring"}, True, None),
        ("disk", False, "no call of 'disk'; called: read_graph"),
    ],
)
def test_the_name_of_an_mcp_server_means_any_of_its_tools(expected, passed, reason):
    call = ToolInvocation(name="read_graph", server="memory")

    [row] = checks([call], expected_tools=[expected])

    assert row.passed is passed
    assert row.reason is None if reason is None else row.reason.startswith(reason)


@pytest.mark.parametrize(
    ("expected", "passed"),
    [
        ({"expected_tools": ["delete"]}, False),
        ({"expected_tools": [{"name": "delete"}]}, False),
        ({"expected_tools": [{"name": "delete", "error": False}]}, False),
        ({"expected_tools": [{"name": "delete", "error": True}]}, True),
        (
            {"expected_tools": [{"name": "delete", "error": True, "result": {"contains": "no"}}]},
            True,
        ),
        ({"expected_tools": [{"name": "delete", "count": 1}]}, False),
        ({"expected_tools": ["look", "delete"], "tool_order": "exact"}, False),
        ({"forbidden_tools": ["delete"]}, False),
        ({"max_tool_calls": 1}, False),
        ({"forbidden_tools": ["pay"]}, True),
    ],
    ids=str,
)
def test_a_call_that_a_filter_blocked_was_requested_but_is_no_expected_call(expected, passed):
    blocked = ToolInvocation(name="delete", blocked=True, error="not run: no")
    calls = [ToolInvocation(name="look"), blocked]

    rows = checks(calls, **expected)

    assert all(row.passed for row in rows) is passed
    assert not any(row.error for row in rows)
