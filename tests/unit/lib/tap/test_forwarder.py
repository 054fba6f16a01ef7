"""How the tap reaches the servers of models: URLs, proxies, and bodies of any size and kind."""

import asyncio
from contextlib import asynccontextmanager

import httpx2
import pytest

from holodeck.errors import ConfigError
from holodeck.lib.llm import http_connection
from holodeck.lib.tap.exchange import find_upstreams
from holodeck.lib.tap.tap import Tap
from unit.lib.tap.conftest import UNUSED

SECRET = "sk-a-secret-that-nobody-may-see"
PATH = "/openai/v1/chat/completions"
ANSWER = b'{"choices": [{"message": {"content": "Hello"}}]}'


@asynccontextmanager
async def serving(*answers):
    """A server that sends these bytes, one a request; yields its port and the heads it got."""
    heads, left, writers = [], list(answers), []

    async def talk(reader, writer):
        writers.append(writer)
        try:
            while left:
                heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
                writer.write(left.pop(0))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heads
        for writer in writers:
            writer.transport.abort()


@asynccontextmanager
async def forwarding(url, proxy_for=lambda _: None):
    """A client of a tap whose server has that URL, with a turn under way."""
    tap = Tap(find_upstreams({"OPENAI_BASE_URL": url}), proxy_for)
    await tap.start()
    own = tap.open_channel(UNUSED)
    try:
        with own.turn() as turn:
            async with httpx2.AsyncClient(base_url=own.url, timeout=None) as client:
                yield client, turn
    finally:
        await tap.close()


@asynccontextmanager
async def in_front_of(*answers, user=""):
    """A client of a tap in front of a server that sends these bytes, the turn, and the heads."""
    async with (
        serving(*answers) as (port, heads),
        forwarding(f"http://{user}127.0.0.1:{port}/v1") as (client, turn),
    ):
        yield client, turn, heads


def with_length(body, status="200 OK"):
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


async def test_a_request_goes_through_the_proxy_of_the_environment_with_its_credentials():
    async with serving(with_length(ANSWER)) as (port, heads):
        proxy = f"http://user:{SECRET}@127.0.0.1:{port}"
        async with forwarding("http://models.example:8080/v1", lambda _: proxy) as (client, turn):
            got = await client.post(PATH, json={"model": "x"})

    assert got.content == ANSWER
    assert heads[0].startswith("POST http://models.example:8080/v1/chat/completions HTTP/1.1\r\n")
    assert "\r\nHost: models.example:8080\r\n" in heads[0]
    assert "\r\nProxy-Authorization: Basic " in heads[0]
    assert turn.problem is None


async def test_a_proxy_that_cannot_be_used_is_a_502_that_says_so():
    def refuse(url):
        raise ConfigError("HTTPS_PROXY", "only proxies that begin with http:// are supported")

    async with forwarding("http://models.example/v1", refuse) as (client, _):
        got = await client.post(PATH, json={"model": "x"})

    assert got.status_code == 502
    assert "only proxies that begin with http://" in got.json()["error"]["message"]


@pytest.mark.parametrize("url", ["models.example/v1", "ftp://models.example", "http://a b/v1"])
async def test_a_server_without_a_usable_url_is_a_502_that_names_the_variable(url):
    async with forwarding(url) as (client, _):
        got = await client.post(PATH, json={"model": "x"})

    assert got.status_code == 502
    assert "OPENAI_BASE_URL: is not a URL" in got.json()["error"]["message"]


async def test_credentials_in_the_url_of_a_server_are_sent_to_it():
    async with in_front_of(with_length(ANSWER), user="user:word@") as (client, _, heads):
        await client.post(PATH, json={}, headers={"authorization": f"Bearer {SECRET}"})

    assert "\r\nAuthorization: Basic dXNlcjp3b3Jk\r\n" in heads[0]
    assert SECRET not in heads[0]


async def test_a_connection_serves_one_request_after_the_other():
    async with in_front_of(with_length(ANSWER), with_length(b""), with_length(ANSWER)) as (
        client,
        _,
        heads,
    ):
        bodies = [(await client.post(PATH, json={})).content for _ in range(3)]

    assert bodies == [ANSWER, b"", ANSWER]
    assert len(heads) == 3


@pytest.mark.parametrize(
    ("method", "answer", "status", "body"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", 200, b""),
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        ("GET", b"HTTP/1.1 103 Early Hints\r\n\r\n" + with_length(b"{}"), 200, b"{}"),
        ("GET", b"HTTP/1.0 200 OK\r\n\r\n{}", 200, b"{}"),
    ],
    ids=["HEAD", "no content", "interim", "until the end"],
)
async def test_a_response_of_any_kind_passes(method, answer, status, body):
    async with in_front_of(answer) as (client, _, _):
        got = await client.request(method, "/openai/v1/files/1")

    assert (got.status_code, got.content) == (status, body)


async def test_a_body_that_the_agent_takes_slowly_arrives_whole(monkeypatch):
    monkeypatch.setattr(http_connection, "MAX_WAITING_BYTES", 1000)
    body = ANSWER[:-1] + b" " * 3_000_000 + b"}"
    async with (
        in_front_of(with_length(body)) as (client, turn, _),
        client.stream("POST", PATH, json={"model": "x"}) as got,
    ):
        taken = b"".join([piece async for piece in got.aiter_raw(1000)])

    assert taken == body
    assert turn.problem is None


@pytest.mark.parametrize("character", ["\r", "\0", "\v"])
async def test_a_head_with_a_control_character_in_a_header_is_a_502(character):
    answer = f"HTTP/1.1 200 OK\r\nX: a{character}Set-Cookie\r\nContent-Length: 0\r\n\r\n"
    async with in_front_of(answer.encode()) as (client, _, _):
        got = await client.post(PATH, json={})

    assert got.status_code == 502
    assert "illegal header line" in got.json()["error"]["message"]


async def test_a_line_feed_without_a_carriage_return_ends_a_header():
    answer = b"HTTP/1.1 200 OK\r\nX: a\nY: b\r\nContent-Length: 0\r\n\r\n"
    async with in_front_of(answer) as (client, _, _):
        got = await client.post(PATH, json={})

    assert got.headers.get_list("x") == ["a"]
    assert got.headers.get_list("y") == ["b"]


def test_only_the_whole_suffix_of_a_path_is_left_out():
    upstream = find_upstreams({"OPENAI_BASE_URL": "https://models.example/api"})["openai"]

    urls = [upstream.url_of(path) for path in ("/v1/chat", "/v1?a=b", "/v1", "/v1.other/chat")]

    assert urls == [
        "https://models.example/api/chat",
        "https://models.example/api?a=b",
        "https://models.example/api",
        "https://models.example/api/v1.other/chat",
    ]
