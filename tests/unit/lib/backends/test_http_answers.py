"""What `backend.answer` and `backend.parse` read of the responses of services."""

import json

import pytest

from fakes import FakeOpenAI
from holodeck.errors import BackendSessionError, ConfigError
from holodeck.lib.backends.http_backend import HttpBackend
from holodeck.models.backend import HttpBackendConfig
from holodeck.models.config import ExecutionConfig
from holodeck.models.token_usage import TokenUsage

ONCE = ExecutionConfig(max_retries=0)
STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}


@pytest.fixture
def server():
    with FakeOpenAI() as running:
        yield running


@pytest.fixture
async def ask(server, tmp_path):
    """Asks the server, with the given parts of the configuration."""
    opened = []

    async def asked(message="hi", **config):
        given = {"type": "http", "url": f"{server.root}/agent"} | config
        opened.append(HttpBackend(HttpBackendConfig(**given), ONCE, tmp_path))
        return await opened[-1].invoke_once(message)

    yield asked
    for backend in opened:
        await backend.teardown()


def events(*documents):
    return "".join(f"data: {json.dumps(document)}\n\n" for document in documents)


CALLS = {"path": "actions", "name": "tool", "arguments": "args", "result": "output"}
CALLS |= {"error": "problem", "call_id": "meta.id", "agent": "by"}
ACTION = {"tool": "book", "args": {"nights": 2}, "output": "ok", "meta": {"id": 7}, "by": "desk"}


async def test_the_parts_of_tool_calls_are_read_where_the_paths_point(server, ask):
    failed = {"tool": "pay", "args": "{}", "problem": "no card", "meta": {"id": 8}, "by": "desk"}
    server.reply(json={"response": "hello", "actions": [ACTION, failed]})

    result = await ask(answer={"tool_calls": CALLS})

    assert result.tool_calls == [
        {"name": "book", "arguments": {"nights": 2}, "call_id": "7", "agent": "desk"},
        {"name": "pay", "arguments": {}, "call_id": "8", "agent": "desk"},
    ]
    assert result.tool_results == [
        {"name": "book", "result": "ok", "call_id": "7"},
        {"name": "pay", "result": "no card", "call_id": "8", "is_error": True},
    ]


async def test_the_model_that_answered_is_read(server, ask):
    server.reply(json={"response": "hello", "by": "gpt-4o", "usage": {"in": 3, "out": 4}})
    paths = {"prompt_tokens": "usage.in", "completion_tokens": "usage.out", "model": "by"}

    assert (await ask(answer=paths)).model == "gpt-4o"


async def test_tool_calls_as_openai_writes_them_are_read(server, ask):
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"n": 9}'}}
    server.reply(json={"choices": [{"message": {"content": "hello", "tool_calls": [call]}}]})
    paths = {"path": "choices[0].message.tool_calls", "call_id": "id"}
    paths |= {"name": "function.name", "arguments": "function.arguments"}

    result = await ask(answer={"text": "choices[0].message.content", "tool_calls": paths})

    assert result.tool_calls == [{"name": "find", "arguments": {"n": 9}, "call_id": "c1"}]


@pytest.mark.parametrize(
    ("path", "passages", "texts"),
    [
        ("found", ["one", " ", "two"], ["one", "two"]),
        ("found", [{"text": "one", "source": "a.md", "rank": 1}], ["[a.md] one"]),
        ({"path": "found", "text": "body", "source": "meta.file"},
         [{"body": "one", "meta": {"file": "a.md"}}], ["[a.md] one"]),
        ("found", [], []),
        ("found", None, None),
    ],
    ids=["texts", "text and source", "paths of their own", "none found", "unknown"],
)  # fmt: skip
async def test_the_retrieved_passages_are_read(server, ask, path, passages, texts):
    server.reply(json={"response": "hello", "found": passages})

    assert (await ask(answer={"retrieval_context": path})).retrieval_context == texts


@pytest.mark.parametrize(
    ("answer", "problem", "reason"),
    [
        ({"error": "no rooms", "response": "Sorry"}, "error", "no rooms"),
        ({"error": {"message": "no rooms", "code": 7}}, "error", "no rooms"),
        ({"error": True}, "error", None),
        ({"status": {"problems": ["no rooms"]}}, "status.problems", '["no rooms"]'),
    ],
    ids=["text", "message", "true", "path of its own"],
)
async def test_an_error_in_a_success_is_an_error(server, ask, answer, problem, reason):
    server.reply(json=answer)

    result = await ask(answer={"error": problem})

    assert (result.response, result.is_error, result.error_reason) == ("", True, reason)


@pytest.mark.parametrize("nothing", [None, False, "", []])
async def test_a_response_may_say_that_there_is_no_error(server, ask, nothing):
    server.reply(json={"response": "hello", "error": nothing})

    assert not (await ask()).is_error


@pytest.mark.parametrize(
    ("answer", "paths", "message"),
    [
        (
            {"actions": [{"tool": "book", "arguments": {}}]},
            {"tool_calls": {"path": "actions", "name": "tool", "arguments": "args"}},
            ("actions[0] has no 'args': it is an object with tool, arguments; write in"
            " 'backend.answer.tool_calls.arguments' where it is"),
        ),
        (
            {"actions": [{"tool": "book", "args": [2]}]},
            {"tool_calls": {"path": "actions", "name": "tool", "arguments": "args"}},
            ("'args' of actions[0] is a list of 1; write in 'backend.answer.tool_calls.arguments'"
            " the path of an object, or of its JSON"),
        ),
        (
            {"actions": {"tool": "book"}},
            {"tool_calls": "actions"},
            ("'actions' of the answer is an object with tool; write in 'backend.answer.tool_calls'"
            " the path of a list"),
        ),
        (
            {"actions": [{"tool": "book", "args": {}}]},
            {"tool_calls": "actions"},
            ("actions[0] has no 'name': it is an object with tool, args; write"
            " 'backend.answer.tool_calls: {path: …, name: …}' with the paths in each item"),
        ),
        (
            {"actions": [{"tool": 7}]},
            {"tool_calls": {"path": "actions", "name": "tool"}},
            "tool_calls[0] has no name: a mapping with 'name'",
        ),
        (
            {"hits": [{"body": "one"}]},
            {"retrieval_context": "hits"},
            ("hits[0] has no 'text': it is an object with body; write"
            " 'backend.answer.retrieval_context: {path: …, text: …}' with the paths in each item"),
        ),
        (
            {"hits": "one"},
            {"retrieval_context": "hits"},
            ("'hits' of the answer is a str; write in 'backend.answer.retrieval_context' the path"
            " of a list"),
        ),
        (
            {},
            {"retrieval_context": "hits"},
            ("the answer has no 'hits': it is an object with response; write in"
            " 'backend.answer.retrieval_context' where it is"),
        ),
        ({"in": "x", "out": 1}, {"prompt_tokens": "in", "completion_tokens": "out"}, "are counts"),
    ],
)  # fmt: skip
async def test_what_the_paths_do_not_fit_is_named_with_the_setting(
    server, ask, answer, paths, message
):
    server.reply(json={"response": "hello", **answer})

    with pytest.raises(BackendSessionError) as raised:
        await ask(answer=paths)
    assert message in str(raised.value)


async def test_the_texts_of_a_stream_are_joined_and_its_lists_put_together(server, ask):
    stream = [
        ": keep-alive",
        'event: token\ndata: {"text": "It is "}',
        'event: call\ndata: {"name": "look_up", "arguments": {}}',
        'event: token\ndata: {"text": "shipped."}',
        'event: call\ndata: {"name": "notify"}',
        'event: done\ndata: {"usage": {"in": 3, "out": 4}}',
        "data: [DONE]",
    ]
    server.reply("\n\n".join(stream), headers=STREAM)
    paths = {"text": "token.text", "tool_calls": "call"}
    paths |= {"prompt_tokens": "done.usage.in", "completion_tokens": "done.usage.out"}

    result = await ask(answer=paths)

    assert result.response == "It is shipped."
    assert [call["name"] for call in result.tool_calls] == ["look_up", "notify"]
    assert result.token_usage == TokenUsage.of(3, 4)


async def test_a_stream_of_openai_is_read(server, ask):
    deltas = [{"role": "assistant", "content": None}, {"content": "hel"}, {"content": "lo"}]
    server.reply(events(*({"choices": [{"delta": delta}]} for delta in deltas)), headers=STREAM)

    assert (await ask(answer={"text": "choices[0].delta.content"})).response == "hello"


async def test_a_stream_of_plain_text_is_the_text_of_its_messages(server, ask):
    server.reply("data: It is \n\ndata: 7\n\n", headers=STREAM)

    assert (await ask(answer={"text": "message"})).response == "It is 7"


async def test_a_stream_without_tool_calls_does_not_say_that_there_were_none(server, ask):
    server.reply(events({"response": "hello"}), headers=STREAM)

    result = await ask(answer={"tool_calls": "call"})

    assert result.tool_calls is None
    assert "let 'backend.parse' say so" in result.tool_calls_problem


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (events({"text": "a"}, {"text": "b"}), ("none of the 2 events of the answer has 'response';"
         " the first is an object with text; write in 'backend.answer.text' where it is")),
        (events({"response": 7}), "the answer's text (backend.answer.text) is an int"),
        ("", "none of the 0 events of the answer has 'response'"),
        ('data: {"response": "hel', ('the answer is not JSON (text/event-stream; charset=utf-8): '
         '{"response": "hel')),
    ],
    ids=["other keys", "no text", "nothing", "cut off"],
)  # fmt: skip
async def test_a_stream_that_the_paths_do_not_fit_is_an_error(server, ask, stream, message):
    server.reply(stream, headers=STREAM)

    with pytest.raises(BackendSessionError) as raised:
        await ask()
    assert message in str(raised.value)


async def test_an_event_that_is_an_error_is_an_error(server, ask):
    stream = events({"response": "It is "}) + 'event: error\ndata: {"message": "no rooms"}\n\n'
    server.reply(stream, headers=STREAM)

    result = await ask()

    assert (result.is_error, result.error_reason) == (True, "no rooms")


async def test_a_get_request_has_its_input_in_the_query_and_no_body(server, ask):
    server.reply(json={"response": "hello"})

    await ask("a b&c", method="GET", url=f"{server.root}/agent?v=1", query={"q": "{input}", "n": 3})

    sent = server.requests[0]
    assert (sent.method, sent.path, sent.raw) == ("GET", "/agent", b"")
    assert dict(sent.query) == {"v": "1", "q": "a b&c", "n": "3"}


async def test_a_value_in_the_url_is_escaped(server, ask):
    server.reply(json={"response": "hello"})

    await ask("a/../b?c", method="PUT", url=f"{server.root}/ask/{{input}}/x")

    assert server.requests[0].path in {"/ask/a%2F..%2Fb%3Fc/x", "/ask/a/../b?c/x"}
    assert server.requests[0].method == "PUT"


FUNCTIONS = """
def prepare(request):
    request["headers"]["x-length"] = str(len(request["body"]["input"]))
    return {**request, "body": {"question": request["body"]["input"].upper()}}


async def parse(answer):
    return {"response": answer["a"], "tool_calls": [], "retrieval_context": answer["b"]}


def forget(request):
    request["url"] = "elsewhere"


def relative(request):
    return {**request, "url": "/agent"}


def misspell(request):
    return {**request, "boby": {}}


def fail(answer):
    return {"error": answer["a"]}


def nothing(answer):
    return None
"""


async def test_functions_say_what_paths_cannot(server, ask, tmp_path):
    (tmp_path / "shop.py").write_text(FUNCTIONS)
    server.reply(json={"a": "hello", "b": ["one"]})

    result = await ask("hi", prepare="shop:prepare", parse="shop:parse")

    sent = server.requests[0]
    assert (sent.body, sent.headers["x-length"]) == ({"question": "HI"}, "2")
    assert (result.response, result.tool_calls) == ("hello", [])
    assert result.retrieval_context == ["one"]


async def test_a_function_gets_the_events_of_a_stream(server, ask, tmp_path):
    (tmp_path / "shop.py").write_text("def parse(events):\n    return f'{events}'\n")
    server.reply(events({"a": 1}, {"b": 2}), headers=STREAM)

    assert (await ask(parse="shop:parse")).response == "[{'a': 1}, {'b': 2}]"


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"prepare": "shop:forget"}, ("'backend.prepare' (shop:forget) returned null; return the"
         " request, a mapping with 'method', 'url', 'query', 'headers', 'body'")),
        ({"prepare": "shop:misspell"}, ("(shop:misspell) returned a mapping with the unknown key"
         " 'boby'; return")),
        ({"prepare": "shop:relative"}, "'/agent' is not a URL such as"),
        ({"parse": "shop:nothing"}, "the agent returned None; return the answer as text"),
    ],
)  # fmt: skip
async def test_a_function_that_returns_something_else_is_named(
    server, ask, tmp_path, functions, message
):
    (tmp_path / "shop.py").write_text(FUNCTIONS)
    server.otherwise(json={"a": "hello"})

    with pytest.raises(BackendSessionError) as raised:
        await ask(**functions)
    assert message in str(raised.value)


async def test_a_function_may_say_that_the_agent_failed(server, ask, tmp_path):
    (tmp_path / "shop.py").write_text(FUNCTIONS)
    server.reply(json={"a": "no rooms"})

    result = await ask(parse="shop:fail")

    assert (result.is_error, result.error_reason) == (True, "no rooms")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"answer": {"tool_calls": {"path": "a", "name": "b..c"}}},
         r"backend\.answer\.tool_calls\.name: 'b\.\.c' is not a path"),
        ({"answer": {"retrieval_context": {"path": "[x]"}}},
         r"backend\.answer\.retrieval_context\.path: '\[x\]' is not a path"),
        ({"method": "GET"}, r"backend\.query: has no place for the input"),
        ({"parse": "shop:missing"}, r"backend\.parse: .*shop"),
    ],
)  # fmt: skip
def test_paths_and_functions_are_checked_before_anything_is_sent(tmp_path, config, message):
    (tmp_path / "shop.py").write_text("")
    given = {"type": "http", "url": "http://localhost"} | config

    with pytest.raises(ConfigError, match=message):
        HttpBackend(HttpBackendConfig(**given), ONCE, tmp_path)
