"""Completions, in pieces and whole, from bytes as servers send them."""

import json

import pytest

from holodeck.lib.llm.errors import RequestError
from holodeck.lib.llm.formats import parse_completion, read_events, read_stream


async def read(*events):
    """Return the pieces of text, and the completion that a stream of these events makes."""

    async def pieces():
        for event in events:
            yield b"data: " + event + b"\n\n"

    *texts, completion = [part async for part in read_stream(pieces())]
    return texts, completion


async def pieces_of(body, size):
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def events_of(body, size=7):
    return [event async for event in read_events(pieces_of(body, size))]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
async def test_events_are_found_wherever_the_pieces_end(size, end):
    lines = [
        b": ping",
        b"data: a",
        b"",
        b"event: x",
        b"data:b",
        b"data: c",
        b"",
        b"data: [DONE]",
        b"",
        b"",
    ]

    assert await events_of(end.join(lines), size) == [b"a", b"b\nc", b"[DONE]"]


async def test_the_last_event_needs_no_empty_line():
    assert await events_of(b"data: a\n\ndata: b") == [b"a", b"b"]


def chunk(delta=None, **fields):
    choices = [] if delta is None else [{"index": 0, "delta": delta, **fields.pop("choice", {})}]
    return json.dumps({"choices": choices, **fields}).encode()


async def test_the_pieces_of_calls_belong_together_by_index():
    first = {"index": 0, "id": "a", "function": {"name": "look", "arguments": ""}}
    second = {"index": 1, "id": "b", "function": {"name": "look", "arguments": "{}"}}

    _, result = await read(
        chunk({"tool_calls": [first]}),
        chunk({"tool_calls": [second, {"index": 0, "function": {"arguments": '{"i'}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": 'd": 1}'}}]}),
        chunk({}, choice={"finish_reason": "tool_calls"}),
        chunk(usage={"prompt_tokens": 3, "completion_tokens": 4}),
    )

    assert [(call.id, call.name, call.arguments) for call in result.calls] == [
        ("a", "look", '{"id": 1}'),
        ("b", "look", "{}"),
    ]
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (3, 4)
    assert result.finish_reason == "tool_calls"


async def test_calls_without_an_index_are_whole():
    calls = [{"function": {"name": name, "arguments": "{}"}} for name in ("look", "go")]

    _, result = await read(*(chunk({"tool_calls": [call]}) for call in calls), b"[DONE]")

    assert [(call.name, call.arguments) for call in result.calls] == [("look", "{}"), ("go", "{}")]


async def test_the_text_comes_in_pieces_also_that_of_a_refusal():
    texts, result = await read(
        chunk({"content": "", "refusal": None}),
        chunk({"refusal": "I "}),
        chunk({"refusal": "won't."}, choice={"finish_reason": "stop"}),
    )

    assert (texts, result.text) == (["I ", "won't."], "I won't.")


async def test_half_a_usage_counts():
    _, result = await read(chunk(usage={"prompt_tokens": 3}), b"[DONE]")

    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (3, 0)


async def test_a_stream_that_breaks_off_is_an_error():
    with pytest.raises(RequestError, match="ended before it was complete"):
        await read(chunk({"content": "Hel"}))


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (b"<html>", "is not a chat completion: it is HTML"),
        (b"[]", "not a chat completion: it is not a JSON object"),
        (b'{"choices": 5}', "its 'choices' are not a list of objects"),
        (chunk([]), "its 'delta' is not an object"),
        (chunk({"content": 5}), "its 'content' are not a list of objects"),
        (chunk({"content": [{"text": 5}]}), "its 'text' is not text"),
        (chunk({"tool_calls": {}}), "its 'tool_calls' are not a list of objects"),
        (chunk({"tool_calls": [5]}), "its 'tool_calls' are not a list of objects"),
        (chunk({"tool_calls": [{"index": 0, "function": {"name": 5}}]}), "its 'name' is not text"),
        (chunk({"tool_calls": [{"index": 0, "function": 5}]}), "its 'function' is not an object"),
        (chunk(usage=5), "its 'usage' is not an object"),
        (chunk(usage={"prompt_tokens": "5"}), "the prompt_tokens of its usage are not a whole"),
        (chunk(usage={"prompt_tokens": 0.5}), "the prompt_tokens of its usage are not a whole"),
        (b'{"error": {"message": "too busy"}}', "too busy"),
        (b'{"error": {"message": "too busy"}, "choices": []}', "too busy"),
    ],
)
async def test_what_is_no_piece_of_a_completion_is_an_error(event, problem):
    with pytest.raises(RequestError, match=problem):
        await read(event)


def whole(**message):
    return json.dumps({"choices": [{"message": message}]}).encode()


def test_whole_calls_are_kept_apart_also_if_all_have_the_index_0():
    calls = [
        {"index": 0, "id": name, "function": {"name": name, "arguments": {"id": 1}}}
        for name in ("look", "go")
    ]

    result = parse_completion(whole(content=None, tool_calls=calls))

    assert [(call.name, call.arguments) for call in result.calls] == [
        ("look", '{"id": 1}'),
        ("go", '{"id": 1}'),
    ]
    assert result.text is None


def test_the_text_of_a_completion_may_be_in_parts():
    thought = {"type": "thinking", "thinking": []}
    parts = [thought, {"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]

    assert parse_completion(whole(content=parts)).text == "Hello"
    assert parse_completion(whole(content="")).text == ""


def test_the_format_before_tool_calls_is_an_error():
    with pytest.raises(RequestError, match="holds a 'function_call', the format before"):
        parse_completion(whole(function_call={"name": "look", "arguments": "{}"}))
