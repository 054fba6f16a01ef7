import json
import time

import pytest

from fakes import FakeOpenAI
from holodeck.errors import (
    BackendError,
    BackendSessionError,
    BackendTimeoutError,
    ConfigError,
)
from holodeck.lib.backends.http_backend import HttpBackend
from holodeck.models.backend import HttpBackendConfig
from holodeck.models.config import ExecutionConfig
from holodeck.models.token_usage import TokenUsage

ONCE = ExecutionConfig(max_retries=0)
TWICE = ExecutionConfig(max_retries=1, retry_delay=0)


@pytest.fixture
def server():
    with FakeOpenAI() as running:
        yield running


@pytest.fixture
async def ask(server):
    """Asks the server, with the given parts of the configuration."""
    opened = []

    async def asked(message="hi", context=None, execution=ONCE, **config):
        given = {"type": "http", "url": f"{server.root}/agent"} | config
        opened.append(HttpBackend(HttpBackendConfig(**given), execution))
        return await opened[-1].invoke_once(message, context)

    yield asked
    for backend in opened:
        await backend.teardown()


async def test_the_input_is_posted_and_the_answer_read(server, ask):
    server.reply(json={"response": "hello"})

    result = await ask("hi", headers={"X-Key": "secret"})

    sent = server.requests[0]
    assert result.response == "hello"
    assert (sent.method, sent.path, sent.body) == ("POST", "/agent", {"input": "hi"})
    assert sent.headers["x-key"] == "secret"
    assert sent.headers["content-type"] == "application/json"


async def test_the_request_is_filled_wherever_it_says_so(server, ask):
    server.reply(json={"response": "hello"})
    template = {
        "deep": [{"text": "User: {input}!"}],
        "exact": "{input}",
        "other": "{unknown} {}",
        "n": 1,
        "id": "{conversation_id}",
        "all": "{messages}",
        "inside": "so far: {messages}",
    }

    await ask('a "{conversation_id}"', [{"role": "user", "content": "b"}], request=template)

    body = server.requests[0].body
    assert body["deep"] == [{"text": 'User: a "{conversation_id}"!'}]
    assert body["exact"] == 'a "{conversation_id}"'
    assert (body["other"], body["n"]) == ("{unknown} {}", 1)
    assert len(body["id"]) == 32
    assert [m["content"] for m in body["all"]] == ["b", 'a "{conversation_id}"']
    assert json.loads(body["inside"].removeprefix("so far: ")) == body["all"]


async def test_the_answer_is_read_where_the_paths_point(server, ask):
    call = {"name": "search", "arguments": '{"q": 1}', "result": "r"}
    server.reply(
        json={
            "choices": [{"message": {"content": "hello", "calls": [call]}}],
            "usage": {"in": 3, "out": 4},
        }
    )
    paths = {
        "text": "choices[0].message.content",
        "tool_calls": "choices[0].message.calls",
        "prompt_tokens": "usage.in",
        "completion_tokens": "usage.out",
    }

    result = await ask(answer=paths)

    assert result.response == "hello"
    assert result.tool_calls == [{"name": "search", "arguments": {"q": 1}, "call_id": "call_0"}]
    assert result.tool_results == [{"name": "search", "result": "r", "call_id": "call_0"}]
    assert result.token_usage == TokenUsage.of(3, 4)


@pytest.mark.parametrize(
    ("answer", "path", "said"),
    [
        ({"reply": "x"}, "response", "the answer has no 'response': it is an object with reply"),
        ({"a": {}}, "a.b.c", "the answer has no 'a.b.c': 'a' is an empty object"),
        ({"a": [1]}, "a[1].b", r"the answer has no 'a\[1\].b': 'a' is a list of 1"),
        ({"a": "x"}, "a.b", "the answer has no 'a.b': 'a' is a str"),
        (["x"], "a", "the answer has no 'a': it is a list of 1"),
        ({"a": None}, "a", r"the answer's text \(backend.answer.text\) is null"),
        ({"a": []}, "a", r"the answer's text \(backend.answer.text\) is a list of 0"),
        ({"a": {"n": 1}}, "a", r"the answer's text \(backend.answer.text\) is an object with n"),
        ({"a": 7}, "a", r"the answer's text \(backend.answer.text\) is an int"),
    ],
)
async def test_a_path_that_leads_nowhere_says_what_is_there(server, ask, answer, path, said):
    server.reply(json=answer)

    with pytest.raises(BackendSessionError, match=said):
        await ask(answer={"text": path})


async def test_null_where_the_tool_calls_belong_says_that_they_are_unknown(server, ask):
    server.reply(json={"response": "hello", "calls": None})
    server.reply(json={"response": "hello", "calls": []})
    paths = {"text": "response", "tool_calls": "calls"}

    assert (await ask(answer=paths)).tool_calls is None
    assert (await ask(answer=paths)).tool_calls == []


async def test_an_answer_that_says_two_things_under_one_key_is_refused(server, ask):
    server.reply(content='{"response": "refund", "response": "done"}')

    with pytest.raises(BackendSessionError, match="the answer has a duplicate key 'response'"):
        await ask()


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 503])
async def test_a_transient_status_is_tried_again(server, ask, status):
    server.reply(status=status, content="busy").reply(json={"response": "hello"})

    result = await ask(execution=TWICE)

    assert result.response == "hello"
    assert len(result.attempts) == 1
    assert f"HTTP {status} from {server.root}/agent: busy" in result.attempts[0].error


@pytest.mark.parametrize("fault", ["reset", "close", "truncate"])
async def test_a_broken_connection_is_tried_again(server, ask, fault):
    server.reply(json={"response": "lost"}, fault=fault).reply(json={"response": "hello"})

    result = await ask(execution=TWICE)

    assert (result.response, len(result.attempts)) == ("hello", 1)


async def test_nobody_listening_is_tried_again_and_named(ask):
    with FakeOpenAI() as gone:
        url = gone.root

    with pytest.raises(
        BackendSessionError, match=r"connection refused \(after 2 attempts\)"
    ) as raised:
        await ask(url=url, execution=TWICE)
    assert [tried.number for tried in raised.value.attempts] == [1, 2]
    assert raised.value.attempts[1].retry_after_ms is None


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_refusal_is_not_tried_again(server, ask, status):
    server.reply(status=status, content="not <you>\x1b[31m")

    with pytest.raises(BackendSessionError, match=rf"HTTP {status} .*not <you>\\x1b") as raised:
        await ask(execution=TWICE)
    assert len(server.requests) == 1
    assert len(raised.value.attempts) == 1


async def test_the_server_says_how_long_to_wait(server, ask):
    server.reply(status=429, headers={"Retry-After": "0.1"}).reply(json={"response": "hello"})
    started = time.monotonic()

    result = await ask(execution=TWICE)

    assert result.attempts[0].retry_after_ms == 100
    assert time.monotonic() - started >= 0.1


async def test_a_wait_that_is_too_long_ends_the_tries(server, ask):
    server.reply(status=429, headers={"Retry-After": "3600"})

    with pytest.raises(
        BackendSessionError, match="the server asks to wait 3600 s, longer than the maximum"
    ):
        await ask(execution=TWICE)
    assert len(server.requests) == 1


async def test_a_redirect_is_not_followed(server, ask):
    server.reply(status=307, headers={"Location": "/elsewhere"})

    with pytest.raises(
        BackendSessionError, match=r"HTTP 307 .*the URL redirects; write the URL that"
    ):
        await ask()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>" + b"<p>no</p>" * 100, r"the answer is not JSON .*: <html><p>no</p>.*…$"),
        (b'{"response": ', "the answer is not JSON"),
        (b"[" * 100_000, "the answer is not JSON"),
        (b"", "the answer is not JSON .*: nothing"),
        (b"\xff\xfe\x00", "the answer is not JSON"),
    ],
    ids=["html", "half", "deep", "empty", "binary"],
)
async def test_an_answer_that_is_no_json_is_shown(server, ask, body, said):
    server.reply(body=body)

    with pytest.raises(BackendSessionError, match=said) as raised:
        await ask()
    assert len(str(raised.value)) < 400


async def test_an_answer_that_is_too_large_is_not_read_to_the_end(server, ask):
    server.reply(body=b'"' + b"x" * 9_000_000 + b'"')

    with pytest.raises(BackendSessionError, match="the answer is too large: more than 8 MB"):
        await ask()


async def test_a_try_that_takes_too_long_is_tried_again(server, ask):
    server.reply(fault="hang").otherwise(json={"response": "hello"})

    result = await ask(execution=ExecutionConfig(max_retries=20, retry_delay=0, attempt_timeout=1))

    assert result.response == "hello"
    assert result.attempts[0].error == "no answer within 1 s"


async def test_the_time_limit_covers_all_tries_and_tells_them(server, ask):
    server.reply(status=503).otherwise(fault="hang")

    with pytest.raises(BackendTimeoutError, match=r"no answer within 1 s") as raised:
        await ask(execution=ExecutionConfig(max_retries=3, retry_delay=0, llm_timeout=1))
    assert [tried.number for tried in raised.value.attempts] == [1]


async def test_a_body_that_drips_does_not_outlast_the_time_limit(server, ask):
    server.reply(json={"response": "x" * 1000}, fault="drip", drip_s=0.05)

    with pytest.raises(BackendTimeoutError):
        await ask(execution=ExecutionConfig(max_retries=0, llm_timeout=0.3))


async def test_cookies_do_not_travel_from_one_call_to_the_next(server):
    server.otherwise(json={"response": "a"}, headers={"Set-Cookie": "who=me"})
    backend = HttpBackend(HttpBackendConfig(type="http", url=server.root), ONCE)

    await backend.invoke_once("a")
    await backend.invoke_once("b")
    await backend.teardown()

    assert "cookie" not in server.requests[1].headers


async def test_secrets_in_the_url_are_not_shown(server, ask):
    server.reply(status=400)
    url = server.root.replace("http://", "http://me:hidden@") + "/a?key=hidden"

    with pytest.raises(BackendSessionError) as raised:
        await ask(url=url)
    assert "hidden" not in str(raised.value)


async def test_earlier_messages_need_a_place(server, ask):
    with pytest.raises(BackendSessionError, match=r"no place for earlier messages; write"):
        await ask("b", [{"role": "user", "content": "a"}])
    assert server.requests == []


async def test_a_session_is_known_by_its_id(server):
    server.otherwise(json={"response": "a"})
    config = HttpBackendConfig(
        type="http", url=server.root, request={"q": "{input}", "id": "{conversation_id}"}
    )
    backend = HttpBackend(config, ONCE)
    one, two = await backend.create_session(), await backend.create_session()

    for session in (one, one, two):
        await session.send("x")
    await backend.teardown()

    ids = [request.body["id"] for request in server.requests]
    assert ids[0] == ids[1] != ids[2]


async def test_a_request_without_a_place_for_messages_refuses_lines_to_remember(server):
    config = HttpBackendConfig(
        type="http", url=server.root, request={"q": "{input}", "id": "{conversation_id}"}
    )
    session = await HttpBackend(config, ONCE).create_session()

    with pytest.raises(ConfigError, match=r"write '\{messages\}' in backend\.request"):
        session.remember([{"role": "assistant", "content": "Hello"}])


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"url": "localhost:80"}, r"backend\.url: 'localhost:80' is not a URL"),
        ({"url": "ftp://a/b"}, "is not a URL"),
        ({"url": "http://a:b/"}, "is not a URL"),
        ({"url": "http://"}, "is not a URL"),
        ({"request": {"q": "{inputs}"}}, r"backend\.request: has no place for the input"),
        ({"answer": {"text": "a..b"}}, r"backend\.answer\.text: 'a\.\.b' is not a path"),
        ({"answer": {"tool_calls": "a[x]"}}, r"backend\.answer\.tool_calls: 'a\[x\]' is not"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(config, said):
    given = {"type": "http", "url": "http://localhost"} | config

    with pytest.raises(ConfigError, match=said):
        HttpBackend(HttpBackendConfig(**given))


async def test_text_that_no_encoding_takes_is_a_backend_error(ask):
    with pytest.raises(BackendError):
        await ask("\ud800")
