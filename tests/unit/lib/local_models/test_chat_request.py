"""What a local model is told about tools, and what it may answer."""

import json

import pytest

from holodeck.errors import BackendSessionError
from holodeck.lib.local_models.chat_request import (
    Answer,
    ChatSettings,
    ToolChoice,
    bound_schema,
    chat_request,
    offers_tools,
    parse_choice,
    tool_choice_schema,
    tools_prompt,
)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather\n in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "18 C"}
ASKED = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Weather?"}]
LARGE, SMALL = ChatSettings(), ChatSettings(small=True)


def said(request):
    return [(message["role"], message["content"]) for message in request["messages"]]


def test_the_tools_are_listed_with_the_json_that_calls_them():
    assert tools_prompt([WEATHER]) == (
        "Reply with one line of JSON, one of:\n"
        'Get the weather in a city: {"tool": "get_weather", "arguments": {"city": "..."}}\n'
        'Talk to the user, when no tool is needed: {"respond": "..."}'
    )


def test_the_grammar_allows_a_tool_call_or_an_answer_only():
    call, answer = tool_choice_schema([WEATHER])["anyOf"]

    assert call["properties"] == {
        "tool": {"const": "get_weather"},
        "arguments": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 256}},
            "required": ["city"],
            "additionalProperties": False,
        },
    }
    assert list(answer["properties"]) == ["respond"]
    assert call["required"] == ["tool", "arguments"]


def test_a_tool_without_parameters_takes_no_arguments():
    call, _ = tool_choice_schema([{"function": {"name": "now"}}])["anyOf"]

    assert call["properties"]["arguments"] == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


def test_references_are_replaced_and_recursion_ends():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    found = bound_schema({"$ref": "#/$defs/Node", "$defs": {"Node": node}}, 10)

    assert "$ref" not in json.dumps(found)
    assert found["properties"]["next"]["properties"]["next"]["type"] == "object"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 5}),
        ({"type": "string", "maxLength": 999}, {"type": "string", "maxLength": 10}),
        (
            {"type": "string", "minLength": 20},
            {"type": "string", "minLength": 20, "maxLength": 20},
        ),
        ({"type": ["string", "null"]}, {"type": ["string", "null"], "maxLength": 10}),
        ({"enum": ["a", "b"]}, {"enum": ["a", "b"]}),
        ({"type": "string", "pattern": "^[a-z]+$"}, {"type": "string", "pattern": "^[a-z]+$"}),
        ({"type": "string", "pattern": r"^\d+$"}, {"type": "string", "maxLength": 10}),
        ({"type": "string", "pattern": "abc"}, {"type": "string", "maxLength": 10}),
        (
            {"type": "array", "items": {"type": "string"}},
            {"type": "array", "items": {"type": "string", "maxLength": 10}, "maxItems": 16},
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            {"anyOf": [{"type": "string", "maxLength": 10}, {"type": "null"}]},
        ),
        ({"allOf": [{"type": "integer"}], "title": "N"}, {"type": "integer"}),
    ],
)
def test_everything_in_a_schema_ends(schema, expected):
    assert bound_schema(schema, 10) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "array", "minItems": 3, "maxItems": 2},
    ],
)
def test_bounds_that_no_value_meets_are_an_error(schema):
    with pytest.raises(BackendSessionError, match="which no value can meet"):
        bound_schema({"type": "object", "properties": {"x": schema}}, 10)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ('{"tool": "add", "arguments": {"a": 1}}', ToolChoice("add", {"a": 1})),
        ('{\n "respond": "Hi \\"you\\""}', Answer('Hi "you"')),
        ('{"respond": {"score": 1, "wörd": []}}', Answer('{"score": 1, "wörd": []}')),
    ],
)
def test_what_the_model_chose_is_understood(text, choice):
    assert parse_choice(text) == choice


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"respond": "I was going to s', r"incomplete or not JSON .*raise max_tokens"),
        ("", "incomplete or not JSON"),
        ("[1]", "neither a tool nor an answer"),
        ('{"tool": "add"}', "neither a tool nor an answer"),
    ],
)
def test_anything_else_is_an_error_that_shows_it(text, reason):
    with pytest.raises(BackendSessionError, match=reason):
        parse_choice(text)


def test_without_tools_a_request_is_the_conversation():
    request = chat_request([*ASKED, {"role": "assistant", "content": "Nice."}], [])

    assert said(request) == [("system", "Be kind."), ("user", "Weather?"), ("assistant", "Nice.")]
    assert not offers_tools(request)
    assert request["temperature"] == 0
    assert "response_format" not in request


def test_with_tools_a_request_lists_them_and_carries_the_grammar():
    request = chat_request(ASKED, [WEATHER])

    assert said(request)[0] == ("system", "Be kind.\n\n" + tools_prompt([WEATHER]))
    assert offers_tools(request)
    schema = request["response_format"]["json_schema"]["schema"]
    assert schema == tool_choice_schema([WEATHER])


def test_results_precede_the_question_and_calls_are_left_out():
    request = chat_request([*ASKED, CALL, RESULT], [WEATHER], LARGE)

    fact = 'get_weather {"city": "Paris"}: 18 C'
    question = f"Read this: {fact}\n\nUse what you read to answer: Weather?"
    assert said(request)[1:] == [("user", question)]
    assert offers_tools(request)


def test_a_small_model_can_only_answer_once_it_has_a_result():
    request = chat_request([*ASKED, CALL, RESULT], [WEATHER], SMALL)

    assert not offers_tools(request)
    assert said(request) == [
        ("system", "Be kind."),
        ("user", "Weather?\n\nThe answer is: 18 C\n\nSay this answer in one sentence."),
    ]


def test_a_small_model_gets_its_tools_back_with_the_next_message():
    messages = [*ASKED, CALL, RESULT, {"role": "assistant", "content": "18 C."}]

    request = chat_request([*messages, {"role": "user", "content": "And now?"}], [WEATHER], SMALL)

    assert offers_tools(request)
    assert said(request)[-2:] == [("assistant", "18 C."), ("user", "And now?")]


def test_the_format_of_an_answer_holds_with_and_without_tools():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    settings = ChatSettings(
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    )
    strict = {**schema, "additionalProperties": False}

    plain = chat_request(ASKED, [], settings)["response_format"]["json_schema"]["schema"]
    choice = chat_request(ASKED, [WEATHER], settings)["response_format"]["json_schema"]["schema"]

    assert plain == strict
    assert choice["anyOf"][-1]["properties"]["respond"] == strict


def test_texts_in_parts_are_joined_and_pictures_are_refused():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    assert said(chat_request([{"role": "user", "content": parts}], [])) == [("user", "ab")]
    with pytest.raises(BackendSessionError, match="image_url"):
        chat_request([{"role": "user", "content": [{"type": "image_url"}]}], [])
