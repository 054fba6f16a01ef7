"""Pairing tool calls with results."""

import pytest

from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.test_runner.observe import (
    invalid_tool_calls,
    pair_tool_calls,
    refuse_last_call,
)
from holodeck.models.test_result import NO_RESULT


def test_results_go_to_their_call_by_id_whatever_the_order():
    calls = [
        {"name": "f", "arguments": {"x": 1}, "call_id": "1"},
        {"name": "f", "arguments": {"x": 2}, "call_id": "2"},
    ]
    results = [
        {"name": "f", "result": "two", "call_id": "2"},
        {"name": "f", "result": "one", "call_id": "1"},
    ]

    paired = pair_tool_calls(calls, results)

    assert [(one.args["x"], one.result) for one in paired] == [(1, "one"), (2, "two")]


def test_without_ids_results_go_by_name_and_order():
    calls = [{"name": "a"}, {"name": "b"}, {"name": "a"}]
    results = [{"name": "a", "result": 1}, {"name": "a", "result": 3}, {"name": "b", "result": 2}]

    assert [one.result for one in pair_tool_calls(calls, results)] == [1, 2, 3]


def test_a_call_without_a_result_says_so():
    [invocation] = pair_tool_calls([{"name": "a", "call_id": "1"}], [])

    assert invocation.error == NO_RESULT


def test_a_failed_tool_keeps_its_error():
    [invocation] = pair_tool_calls(
        [{"name": "a"}], [{"name": "a", "result": "ValueError: no", "is_error": True}]
    )

    assert invocation.error == "ValueError: no"


def test_the_size_of_a_result_is_that_of_its_json():
    [invocation] = pair_tool_calls([{"name": "a"}], [{"name": "a", "result": {"k": "ü"}}])

    assert invocation.bytes == len('{"k": "\\u00fc"}')


@pytest.mark.parametrize(
    ("name", "error", "is_refused"),
    [
        ("erase", "Tool erase not found in agent", True),
        ("erase", "the server is down", False),
        ("lookup", "lookup: order 7 not found", False),
        ("erase", "erase of an agent that a tool runs raised", False),
        ("pay", "Tool 'pay' exceeded max retries", True),
    ],
)
def test_an_error_about_the_last_call_is_the_refusal_of_an_invalid_call(name, error, is_refused):
    calls = [{"name": "pay", "call_id": "1"}, {"name": name, "call_id": "2"}]
    refused = {"name": "pay", "call_id": "1", "result": "no 'id'", "refused": True}
    seen = ExecutionResult("", tool_calls=calls, tool_results=[refused], tools=["lookup", "pay"])

    assert refuse_last_call(seen, error) is is_refused
    assert len(invalid_tool_calls(seen)) == 1 + is_refused


def test_a_malformed_call_is_told_once():
    calls = [{"name": "a", "call_id": "1", "error": "not JSON"}]
    results = [{"name": "a", "call_id": "1", "result": "malformed", "refused": True}]

    answer = ExecutionResult("ok", tool_calls=calls, tool_results=results)
    assert invalid_tool_calls(answer) == ["a: not JSON"]
