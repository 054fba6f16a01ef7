"""Chat requests that skip openai's own preparation are the same requests."""

import pytest

from fakes import FakeOpenAI, Reply

USER = {"role": "user", "content": "Is café open on 24 °C days? 🙂"}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "note", "arguments": '{"text": "hi"}'},
}
TOOL = {
    "type": "function",
    "function": {
        "name": "note",
        "description": "Note it.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
        "strict": True,
    },
}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
PLAIN = {"model": "fake", "messages": [{"role": "system", "content": "Help."}, USER]}
REQUESTS = {
    "plain": PLAIN,
    "settings": {**PLAIN, "temperature": 0.3, "max_tokens": 9, "stop": ["x"], "stream": False},
    "more": {**PLAIN, "logit_bias": {"50256": -100}, "seed": 1, "n": 1, "user": "me"},
    "tools": {**PLAIN, "tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False},
    "history": {
        "model": "fake",
        "messages": [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "noted"},
        ],
    },
    "image": {
        "model": "fake",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE]}],
    },
    "format": {
        **PLAIN,
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}},
    },
    "extra": {**PLAIN, "extra_body": {"top_k": 5}, "extra_headers": {"X-Own": "1"}},
}


async def sent(client, server, parameters):
    """Return the answer, and the request that reached the server."""
    answer = await client.chat.completions.create(**parameters)
    request = server.requests[-1]
    return answer, (request.method, request.path, request.body, dict(request.headers))


@pytest.fixture(scope="module", params=["openai", "azure"])
def client_of(request):
    from openai import AsyncAzureOpenAI, AsyncOpenAI, DefaultAioHttpClient

    def make(server):
        options = {"api_key": "x", "max_retries": 0, "http_client": DefaultAioHttpClient()}
        if request.param == "openai":
            return AsyncOpenAI(base_url=server.url, **options)
        return AsyncAzureOpenAI(
            azure_endpoint=server.url.removesuffix("/v1"),
            azure_deployment="fake",
            api_version="2024-10-21",
            **options,
        )

    return make


@pytest.mark.parametrize("name", REQUESTS)
async def test_the_request_and_its_answer_are_the_same(client_of, name):
    from holodeck.lib.backends.semantic_kernel.openai_requests import send_as_written

    with FakeOpenAI(Reply("ok")) as server:
        async with client_of(server) as plain, client_of(server) as lean:
            send_as_written(lean)
            first, expected = await sent(plain, server, REQUESTS[name])
            second, found = await sent(lean, server, REQUESTS[name])
    assert found == expected
    assert found[2]["model"] == "fake"
    assert type(second) is type(first)
    assert second.choices == first.choices
    assert second.usage == first.usage


async def test_a_stream_is_one(client_of):
    from holodeck.lib.backends.semantic_kernel.openai_requests import send_as_written

    with FakeOpenAI(Reply("to be")) as server:
        async with client_of(server) as client:
            send_as_written(client)
            stream = await client.chat.completions.create(**PLAIN, stream=True)
            parts = [part.choices[0].delta.content or "" async for part in stream if part.choices]
    assert "".join(parts) == "to be"


async def test_errors_are_those_of_the_client(client_of):
    from openai import RateLimitError

    from holodeck.lib.backends.semantic_kernel.openai_requests import send_as_written

    with FakeOpenAI(Reply(status=429, headers={"retry-after": "7"})) as server:
        async with client_of(server) as client:
            send_as_written(client)
            with pytest.raises(RateLimitError) as caught:
                await client.chat.completions.create(**PLAIN)
    assert caught.value.response.headers["retry-after"] == "7"
