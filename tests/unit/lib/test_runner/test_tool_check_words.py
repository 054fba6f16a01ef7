"""What a check of tools says, and where exactly it passes."""

import pytest

from holodeck.lib.checks.matching import Trajectory, matches
from holodeck.lib.checks.tool_checks import check_tools
from holodeck.models.results.evidence import evidence
from holodeck.models.test_case import ExpectedTool, TestCaseModel
from holodeck.models.test_result import ToolInvocation


def called(name, **args):
    return ToolInvocation(name=name, args=args)


def rows(calls, **expectations):
    case = TestCaseModel.model_validate({"input": "x", **expectations})
    found = check_tools(case, Trajectory(calls, evidence(tool_calls="backend")))
    return [(one.expectation, one.passed, one.reason) for one in found]


ARGS = {"q": {"regex": "a+"}, "n": {"number": 2}, "f": {"fuzzy": "x"}, "e": [1]}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("search", "search"),
        ({"name": "search"}, "search()"),
        ({"name": "search", "count": 1}, "search() × 1"),
        ({"name": "search", "match": "substring", "count": 2}, "*search*() × 2"),
        ({"name": "search", "args": ARGS}, "search(q=/a+/, n=2, f=≈'x', e=[1])"),
    ],
    ids=["text", "name", "once", "part", "arguments"],
)
def test_an_expectation_is_shown_as_it_was_written(wanted, words):
    [(shown, _, _)] = rows([], expected_tools=[wanted])

    assert shown == words


@pytest.mark.parametrize(
    ("calls", "wanted", "reason"),
    [
        ([], "a", "no call of 'a'; called: nothing"),
        (["b", "c"], "a", "no call of 'a'; called: b, c"),
        (["a"], "a", None),
        ([], {"name": "a"}, "no call of 'a'; called: nothing"),
        (["ab"], {"name": "a"}, "no call of 'a'; called: ab"),
        (["a", "a"], {"name": "a"}, None),
        (["a"], {"name": "a", "count": 1}, None),
        (["a"], {"name": "a", "count": 2}, "1 matching call of 'a' instead of 2"),
        (["a", "a"], {"name": "a", "count": 1}, "2 matching calls of 'a' instead of 1"),
        (["b"], {"name": "a", "count": 1}, "no call of 'a'; called: b"),
    ],
)
def test_the_reason_says_what_was_called_instead(calls, wanted, reason):
    [(_, passed, why)] = rows([called(name) for name in calls], expected_tools=[wanted])

    assert (passed, why) == (reason is None, reason)


def test_an_expectation_that_a_part_of_a_name_meets_says_so():
    [(_, passed, why)] = rows([called("bab")], expected_tools=["a"])

    note = "'a' is only a part of 'bab'; write '{name: …}' for a whole name"
    assert (passed, why) == (True, note)


def test_of_several_calls_with_wrong_arguments_the_last_is_explained():
    calls = [called("a", n=1), called("b", n=2), called("a", n="x" * 100)]

    for count in ({}, {"count": 1}):
        wanted = {"name": "a", "args": {"n": 2, "m": 3}, **count}
        [(_, passed, why)] = rows(calls, expected_tools=[wanted])

        assert not passed
        assert why == (f"'a': argument 'n' is '{'x' * 76}…, not 2; argument 'm' is missing")


@pytest.mark.parametrize(("length", "is_cut"), [(78, False), (79, True)])
def test_a_value_of_more_than_eighty_characters_is_cut(length, is_cut):
    [(_, _, why)] = rows(
        [called("a", n="x" * length)], expected_tools=[{"name": "a", "args": {"n": 2}}]
    )

    assert ("…" in why) is is_cut


def test_a_call_that_is_forbidden_twice_over_is_told_once_each():
    found = rows([called("a"), called("b")], expected_tools=[], forbidden_tools=["a", "c"])

    assert found == [
        ("no tool call", False, "no tool may be called, but a, b was"),
        ("no call of a", False, "'a' is forbidden, but was called"),
        ("no call of c", True, None),
    ]


@pytest.mark.parametrize(
    ("calls", "passed"),
    [
        ([called("a", n=2), called("b")], True),
        ([called("a", n=1), called("b"), called("a", n=2)], False),
        ([called("a", n=1), called("a", n=2), called("xbx")], True),
        ([called("b"), called("a", n=2), called("b")], True),
    ],
    ids=["in order", "right one too late", "wrong one before", "one more before"],
)
def test_the_order_counts_the_calls_that_meet_the_expectations(calls, passed):
    expected = [{"name": "a", "args": {"n": 2}}, "b"]

    *_, (shown, held, why) = rows(calls, expected_tools=expected, tool_order=True)

    names = ", ".join(one.name for one in calls)
    assert (shown, held) == ("order: a → b", passed)
    assert why == (None if passed else f"not in the order a → b; called: {names}")


@pytest.mark.parametrize(
    ("wanted", "value", "fits"),
    [
        ([1, 2], [1, 2, 3], False),
        ([1, 2], [1], False),
        ([1, 2], [2, 1], False),
        ([True], [1], False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, [1], False),
        (False, 0, False),
        (0, False, False),
        (None, "None", False),
        (1, 1.5, False),
        ("a", "A", False),
        ({"regex": "a|b"}, "b", True),
        ({"regex": "true"}, True, False),
        ({"regex": "True"}, True, True),
        ({"number": 3}, 3.1, False),
        ({"number": 3}, None, False),
        ({"number": 3}, 10**400, False),
        ({"number": {"value": 100, "absolute_tolerance": 5}}, 105, True),
        ({"number": {"value": 100, "absolute_tolerance": 5}}, 95, True),
        ({"number": {"value": 100, "absolute_tolerance": 5}}, 94.9, False),
        ({"number": {"value": 100, "relative_tolerance": 0.1}}, 109, True),
        ({"number": {"value": 100, "relative_tolerance": 0.1}}, 120, False),
        ({"fuzzy": "50%"}, 50, False),
        ({"fuzzy": "50%"}, "50 %", True),
        ({"fuzzy": "abc%"}, "abc%", True),
        ({"fuzzy": "abc%"}, "abc", False),
        ({"fuzzy": "0.3"}, 0.1 + 0.2, True),
        ({"fuzzy": "a_b c"}, "ABC", True),
        ({"fuzzy": "True"}, True, True),
        ({"fuzzy": "1e3"}, 1000, True),
    ],
)
def test_a_matcher_fits_so_much_and_no_more(wanted, value, fits):
    expected = ExpectedTool(name="t", args={"a": wanted})

    assert matches(expected.matchers()["a"], value) is fits
