"""What identifies a request in a recording."""

import pytest
from pydantic import ValidationError

from holodeck.lib.recordings.key import canonical, key_of
from holodeck.models.recordings import IgnoreRule


def request(body):
    return {"path": "POST /chat/completions", "body": body}


def chat(*ids, order=None):
    calls = [
        {"id": call, "type": "function", "function": {"name": f"tool_{at}", "arguments": "{}"}}
        for at, call in enumerate(ids)
    ]
    results = [
        {"role": "tool", "tool_call_id": call, "content": f"result {at}"}
        for at, call in enumerate(ids)
    ]
    ordered = results if order is None else [results[at] for at in order]
    return {"messages": [{"role": "assistant", "tool_calls": calls}, *ordered]}


def responses(*ids, order=None):
    calls = [
        {"type": "function_call", "id": f"fc_{at}", "call_id": call, "name": "look"}
        for at, call in enumerate(ids)
    ]
    results = [
        {"type": "function_call_output", "call_id": call, "output": f"result {at}"}
        for at, call in enumerate(ids)
    ]
    ordered = results if order is None else [results[at] for at in order]
    return {"input": [*calls, *ordered]}


def anthropic(*ids, order=None):
    calls = [{"type": "tool_use", "id": call, "name": "look", "input": {}} for call in ids]
    results = [
        {"type": "tool_result", "tool_use_id": call, "content": f"result {at}"}
        for at, call in enumerate(ids)
    ]
    ordered = results if order is None else [results[at] for at in order]
    return {
        "messages": [
            {"role": "assistant", "content": calls},
            {"role": "user", "content": ordered},
        ]
    }


def ollama(*names, order=None):
    calls = [{"function": {"name": name, "arguments": {}}} for name in names]
    results = [{"role": "tool", "tool_name": name, "content": name} for name in names]
    ordered = results if order is None else [results[at] for at in order]
    return {"messages": [{"role": "assistant", "tool_calls": calls}, *ordered]}


@pytest.mark.parametrize("build", [chat, responses, anthropic, ollama])
def test_results_of_tools_stand_in_the_order_of_their_calls(build):
    in_order = canonical(request(build("a", "b", "c")))

    for order in ([0, 2, 1], [1, 0, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]):
        assert canonical(request(build("a", "b", "c", order=order))) == in_order


@pytest.mark.parametrize("build", [chat, responses, anthropic])
def test_ids_of_calls_are_replaced_by_the_order_of_their_appearance(build):
    first = canonical(request(build("call_x9", "call_a1")))

    assert canonical(request(build("call_b2", "call_c3"))) == first
    assert "call_x9" not in str(first)


def test_swapped_results_are_another_request():
    swapped = chat("a", "b")
    one, two = swapped["messages"][1:]
    one["content"], two["content"] = two["content"], one["content"]

    assert key_of(canonical(request(swapped))) != key_of(canonical(request(chat("a", "b"))))


def test_results_without_their_calls_are_sorted_by_their_ids():
    results = responses("a", "b")["input"][2:]

    turned = canonical(request({"previous_response_id": "r", "input": results[::-1]}))

    assert turned == canonical(request({"previous_response_id": "r", "input": results}))


def test_two_results_of_the_same_tool_without_ids_keep_their_order():
    body = ollama("look", "look")
    body["messages"][1]["content"] = "first"

    assert canonical(request(body))["body"] == body


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.5},
        {"max_tokens": 10},
        {"tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}]},
        {"messages": [{"role": "user", "content": "hi "}]},
    ],
)
def test_every_other_difference_is_another_request(change):
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

    assert key_of(canonical(request(body | change))) != key_of(canonical(request(body)))
    assert key_of(canonical({"path": "POST /embeddings", "body": body})) != key_of(request(body))


def test_the_request_itself_is_not_changed():
    body = chat("a", "b", order=[1, 0])
    before = str(body)

    canonical(request(body), [IgnoreRule(path="$.messages[*].content")])

    assert str(body) == before


def test_ignored_parts_are_replaced_by_their_names():
    rules = [
        IgnoreRule(name="today", pattern=r"\d{4}-\d\d-\d\d"),
        IgnoreRule(path="$.metadata.session_id"),
        IgnoreRule(name="who", path="$.messages[*].name"),
    ]
    body = {
        "messages": [{"name": "ann", "content": "It is 2026-11-27."}, {"content": "Yes."}],
        "metadata": {"session_id": 7, "user": "u"},
    }

    ignored = canonical(request(body), rules)["body"]

    assert ignored == {
        "messages": [{"name": "<who>", "content": "It is <today>."}, {"content": "Yes."}],
        "metadata": {"session_id": "<$.metadata.session_id>", "user": "u"},
    }


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({}, "exactly one of 'pattern' and 'path'"),
        ({"pattern": "a", "path": "$.a", "name": "n"}, "exactly one of 'pattern' and 'path'"),
        ({"pattern": r"\d+"}, "'name' is missing"),
        ({"name": "all", "pattern": ".*"}, "matches every text"),
        ({"name": "all", "pattern": "(?s).+"}, "matches every text"),
        ({"name": "bad", "pattern": "(a"}, "is not a regular expression"),
        ({"path": "metadata.id"}, "expected such as '$.metadata.session_id'"),
        ({"path": "$"}, "expected such as"),
        ({"path": "$.a[x]"}, "expected such as"),
    ],
)
def test_a_rule_that_names_no_part_is_refused(rule, problem):
    with pytest.raises(ValidationError, match=problem.replace("$", r"\$")):
        IgnoreRule(**rule)
