"""The fake model server speaks to the real clients, and goes wrong the way it is told."""

import asyncio
import gc
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest

from fakes import FakeOpenAI, Reply, ToolCall

ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say case-1 please"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
PARIS = [("get_weather", {"city": "Paris"})]


@pytest.fixture
def server():
    with FakeOpenAI() as running:
        yield running


@pytest.fixture
async def client(server):
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture
async def anthropic(server):
    from anthropic import AsyncAnthropic

    async with AsyncAnthropic(base_url=server.root, api_key="x", max_retries=0) as client:
        yield client


@pytest.fixture
async def ollama(server):
    from ollama import AsyncClient

    async with AsyncClient(host=server.root) as client:
        yield client


def chat(client, **options):
    return client.chat.completions.create(model="fake", messages=ASK, **options)


async def test_without_a_script_the_prompt_is_echoed(client):
    answer = await chat(client)

    assert answer.choices[0].message.content == "OK: Say case-1 please"
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (10, 5)


async def test_queued_replies_come_in_order_and_an_empty_queue_is_an_error(server, client):
    from openai import BadRequestError

    server.reply("one").reply("")

    said = [(await chat(client)).choices[0].message.content for _ in range(2)]

    assert said == ["one", ""]
    with pytest.raises(BadRequestError, match="no answer for request 3"):
        await chat(client)


async def test_a_tool_call_carries_its_arguments_and_an_id(server, client):
    server.reply(tool_calls=PARIS)

    message = (await chat(client, tools=[TOOL])).choices[0].message

    assert message.content is None
    assert message.tool_calls[0].function.name == "get_weather"
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Paris"}
    assert message.tool_calls[0].id == "call_1_0"
    assert server.requests[0].tools == ["get_weather"]


async def test_tool_arguments_may_be_malformed_and_ids_may_repeat(server, client):
    server.reply(tool_calls=[ToolCall("a", "{nope", id="same"), ToolCall("b", id="same")])

    calls = (await chat(client)).choices[0].message.tool_calls

    assert [(c.id, c.function.arguments) for c in calls] == [("same", "{nope"), ("same", "{}")]


async def test_rules_go_before_the_queue_and_may_wear_out(server, client):
    server.reply("queued").when("case-1", "ruled", times=1)

    said = [(await chat(client)).choices[0].message.content for _ in range(2)]

    assert said == ["ruled", "queued"]


async def test_a_responder_sees_the_request(server, client):
    server.otherwise(lambda request: f"{request.model}|{request.system}|{request.prompt}")

    assert (await chat(client)).choices[0].message.content == "fake|Be brief.|Say case-1 please"


async def test_tool_results_are_read_back(server, client):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]
    await client.chat.completions.create(model="fake", messages=messages)

    assert server.requests[0].tool_results == ["42"]


async def test_usage_can_be_set_and_left_out(server, client):
    server.reply("a", usage=(100, 7)).reply("b", usage=None)

    assert (await chat(client)).usage.total_tokens == 107
    assert (await chat(client)).usage is None


async def test_a_stream_joins_to_the_content_and_ends_with_usage(server, client):
    server.reply("Grüße, two  words\n")

    stream = await chat(client, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]

    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert said == "Grüße, two  words\n"
    assert len(chunks) > 4
    assert chunks[-1].usage.total_tokens == 15


async def test_tool_calls_stream_in_parts(server, client):
    server.reply("Let me look.", tool_calls=PARIS)

    async with client.chat.completions.stream(model="fake", messages=ASK) as stream:
        choice = (await stream.get_final_completion()).choices[0]

    assert choice.message.content == "Let me look."
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {"city": "Paris"}
    assert choice.finish_reason == "tool_calls"


async def test_models_are_listed(client):
    assert [model.id for model in (await client.models.list()).data] == ["fake"]


async def test_azure_paths_are_served(server):
    from openai import AsyncAzureOpenAI

    async with AsyncAzureOpenAI(
        azure_endpoint=server.root, api_key="k", api_version="2024-10-21"
    ) as client:
        answer = await client.chat.completions.create(model="gpt", messages=ASK)

    assert answer.choices[0].message.content == "OK: Say case-1 please"
    request = server.requests[0]
    assert request.path == "/openai/deployments/gpt/chat/completions"
    assert request.query == {"api-version": "2024-10-21"}
    assert request.headers["api-key"] == "k"


async def test_anthropic_answers_with_blocks_and_usage(server, anthropic):
    server.reply("Looking.", tool_calls=PARIS, usage=(3, 4))

    answer = await anthropic.messages.create(
        model="fake", max_tokens=10, system="Be brief.", messages=ASK[1:]
    )

    assert answer.content[0].text == "Looking."
    assert (answer.content[1].name, answer.content[1].input) == ("get_weather", {"city": "Paris"})
    assert answer.stop_reason == "tool_use"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (3, 4)
    assert server.requests[0].system == "Be brief."
    assert server.requests[0].prompt == "Say case-1 please"


async def test_anthropic_tool_results_are_read_back(server, anthropic):
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "42"}
    await anthropic.messages.create(
        model="fake", max_tokens=10, messages=[{"role": "user", "content": [result]}]
    )

    assert server.requests[0].tool_results == ["42"]


async def test_anthropic_streams(server, anthropic):
    server.reply("Two words", tool_calls=PARIS)

    async with anthropic.messages.stream(model="fake", max_tokens=10, messages=ASK[1:]) as stream:
        answer = await stream.get_final_message()

    assert answer.content[0].text == "Two words"
    assert answer.content[1].input == {"city": "Paris"}
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (10, 5)


async def test_anthropic_errors_carry_their_message(server, anthropic):
    from anthropic import RateLimitError

    server.reply("slow down", status=429)

    with pytest.raises(RateLimitError, match="slow down"):
        await anthropic.messages.create(model="fake", max_tokens=10, messages=ASK[1:])


async def test_ollama_answers_with_tool_calls_and_counts(server, ollama):
    server.reply("Looking.", tool_calls=PARIS, usage=(3, 4))

    answer = await ollama.chat(model="fake", messages=ASK, tools=[TOOL])

    assert answer.message.content == "Looking."
    assert answer.message.tool_calls[0].function.arguments == {"city": "Paris"}
    assert (answer.prompt_eval_count, answer.eval_count) == (3, 4)


async def test_ollama_streams_lines(server, ollama):
    server.reply("Two words", tool_calls=PARIS)

    parts = [part async for part in await ollama.chat(model="fake", messages=ASK, stream=True)]

    assert "".join(part.message.content for part in parts) == "Two words"
    assert [c.function.name for p in parts for c in p.message.tool_calls or []] == ["get_weather"]
    assert parts[-1].done
    assert parts[-1].eval_count == 5


async def test_ollama_errors_carry_their_message(server, ollama):
    from ollama import ResponseError

    server.reply("no such model", status=404)

    with pytest.raises(ResponseError, match="no such model"):
        await ollama.chat(model="fake", messages=ASK)


async def test_an_error_status_carries_headers(server, client):
    from openai import RateLimitError

    server.reply("slow down", status=429, headers={"Retry-After": "1", "retry-after-ms": "900"})

    with pytest.raises(RateLimitError, match="slow down") as caught:
        await chat(client)
    assert caught.value.response.headers["retry-after"] == "1"
    assert caught.value.response.headers["retry-after-ms"] == "900"


@pytest.mark.parametrize("fault", ["reset", "close", "truncate"])
async def test_a_broken_connection_is_seen_by_the_client(server, client, fault):
    from openai import APIConnectionError

    server.reply("x", fault=fault).reply("fine")

    with pytest.raises(APIConnectionError):
        await chat(client)
    assert (await chat(client)).choices[0].message.content == "fine"
    assert server.abandoned == 0


@pytest.mark.parametrize("fault", ["hang", "half_open"])
async def test_a_silent_connection_times_out_and_is_counted_as_abandoned(server, client, fault):
    from openai import APITimeoutError, Timeout

    server.reply("x", fault=fault)

    with pytest.raises(APITimeoutError):
        await chat(client, timeout=Timeout(60, read=0.2))
    await server.saw(1)
    await asyncio.to_thread(server.wait_until_idle)
    assert server.abandoned == 1


async def test_a_stream_can_be_cut(server, client):
    from httpx2 import RemoteProtocolError
    from openai import APIConnectionError

    server.reply("several words to cut", fault="truncate")

    stream = await chat(client, stream=True)
    assert (await anext(aiter(stream))).choices[0].delta.content == ""
    with pytest.raises((APIConnectionError, RemoteProtocolError)):
        [chunk async for chunk in stream]


async def test_a_body_can_drip(server, client):
    server.reply("slow", fault="drip", drip_s=0.0005)

    started = time.monotonic()
    answer = await chat(client)

    assert answer.choices[0].message.content == "slow"
    assert time.monotonic() - started > 0.1


def test_a_raw_body_is_sent_as_it_is_on_any_path(server):
    server.when(lambda r: r.path == "/doc.txt", body=b"\xff\x00", headers={"Content-Type": "a/b"})

    with urllib.request.urlopen(f"{server.root}/doc.txt") as answer:
        assert (answer.read(), answer.headers["content-type"]) == (b"\xff\x00", "a/b")
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(f"{server.root}/other")


def test_a_request_may_come_in_chunks_and_in_pieces(server):
    request = b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab"
    rest = b"cd\r\n2\r\nef\r\n0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(server.root.rsplit(":", 1)[1]))) as sock:
        sock.sendall(request)
        time.sleep(0.02)
        sock.sendall(rest)
        sock.recv(1000)

    assert server.requests[0].raw == b"abcdef"


def test_a_script_that_raises_fails_the_test():
    def broken(request):
        raise LookupError("nothing planned")

    with (
        pytest.raises(ExceptionGroup) as caught,
        FakeOpenAI(broken) as server,
        pytest.raises(urllib.error.HTTPError),
    ):
        urllib.request.urlopen(f"{server.root}/x")
    assert isinstance(caught.value.exceptions[0], LookupError)


async def test_concurrency_is_counted(server, client):
    with server.held():
        asked = [asyncio.ensure_future(chat(client)) for _ in range(20)]
        arrived = await server.saw(20)
        assert server.in_flight == 20
    await asyncio.gather(*asked)

    assert server.peak_in_flight == 20
    assert [r.number for r in arrived] == list(range(1, 21))
    assert max(r.in_flight for r in arrived) == 20


async def test_latency_holds_the_answer_back(client, server):
    server.otherwise("late", latency_s=0.1)

    started = time.monotonic()
    await asyncio.gather(*(chat(client) for _ in range(5)))

    assert time.monotonic() - started >= 0.1


def test_waiting_for_too_many_requests_says_how_many_came(server):
    with pytest.raises(TimeoutError, match="0 of 3"):
        server.wait_for_requests(3, timeout=0.01)


async def test_a_request_that_hangs_does_not_hold_the_server_back():
    with FakeOpenAI() as server:
        server.otherwise(Reply(fault="hang"))
        _, writer = await asyncio.open_connection("127.0.0.1", int(server.root.rsplit(":", 1)[1]))
        writer.write(b"GET /x HTTP/1.1\r\n\r\n")
        await server.saw(1)
    writer.close()


def test_a_server_that_stops_on_a_busy_machine_closes_what_it_just_accepted():
    busy, server = threading.Barrier(2), FakeOpenAI().__enter__()
    server._loop.call_soon_threadsafe(lambda: (busy.wait(), busy.wait()))
    busy.wait()

    with ExitStack() as clients:
        for _ in range(10):
            clients.enter_context(socket.create_connection(("127.0.0.1", server._port)))
        server._loop.call_soon_threadsafe(server._stopping.set)
        busy.wait()
        server._thread.join()

    gc.collect()  # a connection that was lost and not closed is an error here
