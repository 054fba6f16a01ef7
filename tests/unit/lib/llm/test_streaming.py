"""Completions that come in pieces, from bytes as servers send them."""

import json

import pytest

from holodeck.lib.llm.completion import StreamedCompletion, read_events
from holodeck.lib.llm.errors import RequestError


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


def test_the_pieces_of_calls_belong_together_by_index():
    completion = StreamedCompletion()
    first = {"index": 0, "id": "a", "function": {"name": "look", "arguments": ""}}
    second = {"index": 1, "id": "b", "function": {"name": "look", "arguments": "{}"}}
    completion.add(chunk({"tool_calls": [first]}))
    completion.add(chunk({"tool_calls": [second, {"index": 0, "function": {"arguments": '{"i'}}]}))
    completion.add(chunk({"tool_calls": [{"index": 0, "function": {"arguments": 'd": 1}'}}]}))
    completion.add(chunk({}, choice={"finish_reason": "tool_calls"}))
    completion.add(chunk(usage={"prompt_tokens": 3, "completion_tokens": 4}))

    result = completion.result()

    assert [(call.id, call.name, call.arguments) for call in result.calls] == [
        ("a", "look", '{"id": 1}'),
        ("b", "look", "{}"),
    ]
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (3, 4)
    assert result.finish_reason == "tool_calls"


def test_a_stream_that_breaks_off_is_an_error():
    completion = StreamedCompletion()
    completion.add(chunk({"content": "Hel"}))

    with pytest.raises(RequestError, match="ended before it was complete"):
        completion.result()


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (b"<html>", "is HTML, not a chat completion"),
        (b"[]", "not a chat completion"),
        (chunk({"content": 5}), "its content is not text"),
        (chunk({"tool_calls": {}}), "its tool calls are not a list"),
        (chunk({"tool_calls": [5]}), "is not an object"),
        (chunk({"tool_calls": [{"index": 0, "function": {"name": 5}}]}), "is not text"),
        (b'{"error": {"message": "too busy"}}', "too busy"),
    ],
)
def test_what_is_no_piece_of_a_completion_is_an_error(event, problem):
    with pytest.raises(RequestError, match=problem):
        StreamedCompletion().add(event)
