"""Replies of a scripted model in every wire format: what is written is what the tap reads."""

import json

import pytest

from holodeck.lib.llm.completion import Completion, RawToolCall
from holodeck.lib.tap.reading import body_reader, find_reader
from holodeck.lib.tap.replies import PATHS, cut, render_reply
from holodeck.models.token_usage import TokenUsage

CALLS = [RawToolCall("call_1", "get_order", '{"id": 7}'), RawToolCall("call_2", "ping", "{}")]
REPLIES = {
    "text": Completion("It has been sent.", (), TokenUsage()),
    "calls": Completion(None, CALLS, TokenUsage()),
    "both": Completion("One moment.", CALLS, TokenUsage()),
}


async def read(path, request, reply):
    """What the tap reads of a reply as it is written to that path."""
    response = render_reply(path, request, reply, 1)
    reader = find_reader("POST", path)()
    pieces = body_reader(reader, response.headers)
    async for piece in response.body:
        pieces.feed(piece)
    pieces.end()
    return reader


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_reply_is_read_as_it_was_written(path, stream):
    for reply in REPLIES.values():
        reader = await read(path, {"model": "m", "stream": stream}, reply)

        assert reader.text == (reply.text or "")
        assert [(call.name, json.loads(call.arguments)) for call in reader.calls] == [
            (call.name, json.loads(call.arguments)) for call in reply.calls
        ]
        assert reader.has_all_calls
        assert reader.usage is None


def test_a_path_of_another_format_has_no_reply():
    assert render_reply("/v1/completions", {}, REPLIES["text"], 1) is None


def test_a_response_is_cut_in_its_text_or_in_the_arguments_of_its_last_call():
    assert cut(REPLIES["text"]).text == "It has b"
    assert [call.arguments for call in cut(REPLIES["both"]).calls] == ['{"id": 7}', "{"]
    assert cut(Completion(None, (), TokenUsage())) is None
