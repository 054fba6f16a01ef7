"""The tap as a proxy: whatever passes arrives as it was sent, and nothing else gets in or out."""

import asyncio
import gzip
import json
import logging
import socket
from urllib.parse import urlsplit

import httpx2
import pytest

from fakes import Reply
from holodeck.lib.tap import reading, server
from holodeck.lib.tap.channel import BROKEN_OFF, UNFINISHED
from unit.lib.tap.conftest import UNUSED, tapping

PATH = "/openai/v1/chat/completions"
ASKED = {"model": "gpt-x", "messages": [{"role": "user", "content": "Hello"}]}
SECRET = "sk-a-secret-that-nobody-may-see"


@pytest.fixture
async def client():
    async with httpx2.AsyncClient(timeout=None) as found:
        yield found


async def test_bytes_status_and_headers_pass_as_they_are(tapped, client):
    body = gzip.compress(b'{"error": {"message": "slow  down", "type": "x"}}')
    headers = {
        "content-type": "application/json; charset=utf-8",
        "content-encoding": "gzip",
        "retry-after": "7",
        "x-ratelimit-remaining-requests": "0",
        "connection": "keep-alive, x-for-one-connection",
        "x-for-one-connection": "yes",
    }
    tapped.server.reply(body=body, status=429, headers=headers)

    async with client.stream(
        "POST", tapped.channel.url + PATH + "?a=b%20c", content=b'{ "model":"x"}'
    ) as got:
        raw = b"".join([piece async for piece in got.aiter_raw()])

    assert (got.status_code, got.reason_phrase, raw) == (429, "Too Many Requests", body)
    passed = {name: value for name, value in headers.items() if "connection" not in name}
    assert {name: got.headers[name] for name in passed} == passed
    assert "x-for-one-connection" not in got.headers
    [request] = tapped.server.requests
    assert (request.path, request.query) == ("/v1/chat/completions", {"a": "b c"})
    assert request.raw == b'{ "model":"x"}'


async def test_a_compressed_response_is_read_all_the_same(tapped, client):
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    document = {"choices": [{"message": {"role": "assistant", "tool_calls": [call]}}]}
    body = gzip.compress(json.dumps(document).encode())
    tapped.server.reply(body=body, headers={"content-encoding": "gzip"})

    with tapped.channel.turn() as turn:
        got = await client.post(tapped.channel.url + PATH, json=ASKED)

    assert got.json() == document
    assert [call.name for call, _ in turn.calls] == ["look"]


async def test_only_codings_that_can_be_read_are_asked_for(tapped, client):
    headers = {"accept-encoding": "zstd, gzip;q=0.5, br, deflate"}
    await client.post(tapped.channel.url + PATH, json=ASKED, headers=headers)

    assert tapped.server.requests[0].headers["accept-encoding"] == "gzip;q=0.5, deflate"


async def test_a_stream_passes_piece_by_piece_and_ends_upstream_when_the_client_leaves(
    tapped, client
):
    tapped.server.reply("Half of this arrives, and then nothing.", fault="half_open")

    with tapped.channel.turn() as turn:
        asked = {**ASKED, "stream": True}
        async with client.stream("POST", tapped.channel.url + PATH, json=asked) as got:
            first = await anext(got.aiter_raw())
    await asyncio.to_thread(tapped.server.wait_until_idle)

    assert first.startswith(b"data: {")
    assert tapped.server.abandoned == 1
    assert turn.problem in {UNFINISHED, BROKEN_OFF}


@pytest.mark.parametrize("fault", ["truncate", "cut_chunk"])
async def test_a_response_that_breaks_off_does_so_for_the_client_too(tapped, client, fault):
    tapped.server.reply("This does not arrive as a whole.", fault=fault)

    with tapped.channel.turn() as turn, pytest.raises(httpx2.RemoteProtocolError):
        await client.post(tapped.channel.url + PATH, json=ASKED)

    assert turn.problem in {UNFINISHED, BROKEN_OFF}


@pytest.mark.parametrize("fault", ["reset", "close"])
async def test_no_response_is_a_502_that_says_why(tapped, client, fault):
    tapped.server.reply(fault=fault)

    got = await client.post(tapped.channel.url + PATH, json=ASKED)

    error = got.json()["error"]
    assert (got.status_code, error["type"], error["code"]) == (
        502,
        "holodeck_tap_error",
        "upstream_error",
    )
    assert "OPENAI_BASE_URL" in error["message"]


async def test_a_server_that_cannot_be_reached_is_a_502_without_its_credentials(
    fake_openai, client
):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://user:{SECRET}@127.0.0.1:{port}/v1"
    async with tapping(fake_openai, OPENAI_BASE_URL=url) as tapped:
        got = await client.post(tapped.channel.url + PATH, json=ASKED)

    assert got.status_code == 502
    assert f"127.0.0.1:{port}" in got.text
    assert SECRET not in got.text


@pytest.mark.parametrize(
    "change",
    [
        lambda _: "/",
        lambda _: "/v1/chat/completions",
        lambda path: path.replace(path.split("/")[1], "another-token"),
        lambda path: path.replace(path.split("/")[2], "another-channel"),
        lambda path: path.replace("openai", "another-provider"),
    ],
    ids=["root", "no token", "token", "channel", "provider"],
)
async def test_only_its_own_urls_exist(tapped, client, change):
    own = urlsplit(tapped.channel.url + PATH)

    got = await client.post(f"http://{own.netloc}{change(own.path)}", json=ASKED)

    assert (got.status_code, got.json()["error"]["message"]) == (404, "nothing is here")
    assert tapped.server.requests == []


async def test_a_closed_channel_takes_no_more_requests(tapped, client):
    tapped.tap.close_channel(tapped.channel)

    got = await client.post(tapped.channel.url + PATH, json=ASKED)

    assert got.status_code == 404


async def test_a_request_that_is_too_large_is_refused(tapped, client, monkeypatch):
    monkeypatch.setattr(server, "MAX_REQUEST_BYTES", 1000)

    got = await client.post(tapped.channel.url + PATH, content=b"x" * 1001)

    assert (got.status_code, got.json()["error"]["code"]) == (413, "request_too_large")
    assert tapped.server.requests == []


async def test_a_client_that_goes_on_sending_reads_why_it_was_refused(tapped, client, monkeypatch):
    monkeypatch.setattr(server, "MAX_REQUEST_BYTES", 1000)

    got = await client.post(tapped.channel.url + PATH, content=b"x" * 20_000_000)

    assert (got.status_code, got.json()["error"]["code"]) == (413, "request_too_large")


@pytest.mark.parametrize(
    "sent",
    [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"],
    ids=["not HTTP", "long head"],
)
async def test_what_is_not_http_is_refused(tapped, sent):
    own = urlsplit(tapped.channel.url)
    reader, writer = await asyncio.open_connection("127.0.0.1", own.port)
    writer.write(sent)
    got = await reader.read()
    writer.close()
    await writer.wait_closed()

    assert got.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))


async def test_a_websocket_is_refused(tapped, client):
    headers = {"connection": "upgrade", "upgrade": "websocket"}

    got = await client.get(tapped.channel.url + "/openai/v1/realtime", headers=headers)

    assert got.status_code == 501


async def test_it_listens_on_loopback_only(tapped):
    own = urlsplit(tapped.channel.url)
    names = {one[4][0] for one in socket.getaddrinfo(socket.gethostname(), own.port)}

    assert own.hostname == "127.0.0.1"
    for address in names - {"127.0.0.1", "127.0.1.1", "::1"}:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(address, own.port)


async def test_requests_at_the_same_time_belong_to_their_own_channels(tapped, client):
    tapped.server.otherwise(
        lambda request: Reply(tool_calls=[(request.prompt, {})], latency_s=0.05)
    )

    async def ask(name):
        channel = tapped.tap.open_channel(UNUSED)
        with channel.turn() as turn:
            for _ in range(3):
                asked = {"model": "x", "messages": [{"role": "user", "content": name}]}
                got = await client.post(channel.url + PATH, json=asked)
                assert got.status_code == 200
        return [call.name for call, _ in turn.calls]

    names = [f"tool_{number}" for number in range(50)]
    seen = await asyncio.gather(*map(ask, names))

    assert seen == [[name] * 3 for name in names]
    assert tapped.server.peak_in_flight > 10


async def test_closing_ends_what_is_under_way_on_both_sides(tapped, client):
    tapped.server.reply(fault="hang")
    asking = asyncio.create_task(client.post(tapped.channel.url + PATH, json=ASKED))
    await tapped.server.saw(1)

    await tapped.tap.close()

    with pytest.raises(httpx2.TransportError):
        await asking
    await asyncio.to_thread(tapped.server.wait_until_idle)
    assert tapped.server.abandoned == 1
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", urlsplit(tapped.channel.url).port)


async def test_no_secret_is_logged(tapped, client, caplog):
    caplog.set_level(logging.DEBUG)
    headers = {"authorization": f"Bearer {SECRET}", "api-key": SECRET, "x-api-key": SECRET}
    tapped.server.reply(body=f"not JSON, but {SECRET}".encode())

    with tapped.channel.turn() as turn:
        await client.post(tapped.channel.url + PATH + f"?key={SECRET}", json=ASKED, headers=headers)

    own = [one.getMessage() for one in caplog.records if one.name.startswith("holodeck")]
    assert own
    assert SECRET not in " ".join(own)
    assert SECRET not in repr(turn)


@pytest.mark.parametrize(
    ("path", "reply", "problem"),
    [
        (
            PATH,
            Reply(body=b"<html>"),
            "the tap cannot read the response to POST /v1/chat/completions",
        ),
        (PATH, Reply(json=["no object"]), "it is not a JSON object"),
        (PATH, Reply(json={"choices": "none"}), "its 'choices' are not a list of objects"),
        (
            PATH,
            Reply(json={"choices": [{"message": {"function_call": {"name": "x"}}}]}),
            "function",
        ),
        (PATH, Reply(body=b"x", headers={"content-encoding": "br"}), "'br' is not supported"),
        (PATH, Reply(json={"padding": "x" * 1000}), "it is larger than 0.0005 MB"),
        ("/openai/v1/responses", Reply(json={"status": "queued"}), "in the background"),
        (
            "/openai/v1/conversations/c/items",
            Reply(json={}),
            "the tap cannot read POST /v1/conversations/c/items",
        ),
        (
            PATH,
            Reply(body=b'data: {"choices": []}\n\n', headers={"content-type": "text/event-stream"}),
            "its stream ended early",
        ),
    ],
    ids=["HTML", "list", "no list", "old", "coding", "large", "background", "path", "cut stream"],
)
async def test_what_cannot_be_read_passes_and_is_unknown(
    tapped, client, monkeypatch, path, reply, problem
):
    monkeypatch.setattr(reading, "MAX_READ_BYTES", 500)
    tapped.server.otherwise(reply)

    with tapped.channel.turn() as turn:
        async with client.stream("POST", tapped.channel.url + path, json=ASKED) as got:
            passed = b"".join([piece async for piece in got.aiter_raw()])

    assert (got.status_code, passed) == (200, reply.fixed_body)
    assert problem in turn.problem
    assert not turn.calls
