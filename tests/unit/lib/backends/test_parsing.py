"""Arguments of tool calls: what is read, and what is said about the rest."""

import pytest

from holodeck.errors import BackendSessionError
from holodeck.lib.backends.parsing import parse_arguments, parse_result


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"q": "x", "n": -1.5e3}', {"q": "x", "n": -1500.0}),
        ({"q": [1, {"b": None}]}, {"q": [1, {"b": None}]}),
        ("", {}),
        (" \n", {}),
        (None, {}),
        ({}, {}),
        ("null", {}),
        ('{"a": 1, "a": 2}', {"a": 2}),
    ],
)
def test_arguments_become_a_mapping(written, read):
    assert parse_arguments(written) == (read, None)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[1]", "the model wrote arguments that are not a JSON object"),
        ('{"q":', "malformed arguments: Expecting value"),
        ('{"n": -Infinity}', "malformed arguments: -Infinity is not JSON"),
        ('{"n": 1e999}', "malformed arguments: the number 1e999 is too large"),
        ('{"n": ' + "9" * 5000 + "}", "a number has 5,000 digits; at most 4,000 are read"),
        ('{"q":' * 101 + "1" + "}" * 101, "nested more than 100 levels deep"),
        ('{"q":' * 100_000, "nested more than 100 levels deep"),
    ],
    ids=lambda text: text[:20],
)
def test_arguments_that_cannot_be_read_are_kept_as_text(written, said):
    arguments, error = parse_arguments(written)

    assert arguments == {"raw": written}
    assert said in error
    assert len(error) < 200


def test_a_mapping_that_is_nested_too_deep_is_kept_as_text():
    deep = {}
    for _ in range(150):
        deep = {"q": deep}

    arguments, error = parse_arguments(deep)

    assert arguments["raw"].count("{") == 151
    assert "nested more than 100 levels deep" in error


def test_a_result_that_says_that_no_tool_got_the_call_is_an_error():
    row = {"name": "erase", "call_id": "1", "result": "unknown", "refused": True}
    calls = [{"name": "erase", "call_id": "1"}]

    found = parse_result({"response": "ok", "tool_calls": calls, "tool_results": [row]})

    assert found.tool_results == [row | {"is_error": True}]


def test_an_agent_may_say_which_model_answered():
    class Completion:
        output = "ok"
        model = object()  # not a name, as in results of other libraries

    assert parse_result({"response": "ok", "model": "gpt-4o"}).model == "gpt-4o"
    assert parse_result(Completion()).model is None
    with pytest.raises(BackendSessionError, match="'model' must be the name of a model, not"):
        parse_result({"response": "ok", "model": 4})


def test_an_agent_may_say_that_it_ended_with_its_calls():
    said = {"response": "", "tool_calls": ["refund"]}

    assert parse_result(said | {"ends_with_calls": True}).ends_with_calls
    assert not parse_result(said).ends_with_calls
    with pytest.raises(BackendSessionError, match="'ends_with_calls' is true or false, not"):
        parse_result(said | {"ends_with_calls": "yes"})
