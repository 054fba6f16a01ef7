"""Services with sessions: create, message and close, whatever happens in between."""

import asyncio
from itertools import count

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.errors import BackendError, BackendSessionError, BackendTimeoutError
from holodeck.lib.backends import http_backend
from holodeck.lib.backends.http_backend import HttpBackend
from holodeck.models.backend import HttpBackendConfig
from holodeck.models.config import ExecutionConfig

ONCE = ExecutionConfig(max_retries=0)


class Desk:
    """A service that knows its sessions."""

    def __init__(self):
        self.open: dict[str, list[str]] = {}
        self.closed: list[str] = []
        self._ids = count(1)

    def __call__(self, request):
        [_, _, *rest] = request.path.split("/")
        if not rest:
            session_id = f"s{next(self._ids)}"
            self.open[session_id] = []
            return Reply(json={"session": {"id": session_id}})
        session_id = rest[0]
        if request.method == "DELETE":
            self.closed.append(session_id)
            del self.open[session_id]
            return Reply(status=204, body=b"")
        self.open[session_id].append(request.body["input"])
        return Reply(json={"response": " ".join(self.open[session_id])})


@pytest.fixture
def desk():
    return Desk()


@pytest.fixture
def server(desk):
    with FakeOpenAI(desk) as running:
        yield running


def config(server, *, closes=True, **changes):
    session = {"create": {"url": f"{server.root}/sessions", "id": "session.id"}}
    if closes:
        session["close"] = {"url": f"{server.root}/sessions/{{session_id}}"}
    given = {"type": "http", "url": f"{server.root}/sessions/{{session_id}}/messages"}
    return HttpBackendConfig.model_validate(given | {"session": session} | changes)


@pytest.fixture
async def backend(server):
    made = HttpBackend(config(server), ONCE)
    yield made
    await made.teardown()


async def test_each_conversation_has_a_session_of_its_own_which_is_closed(backend, desk):
    first, second = await backend.create_session(), await backend.create_session()

    answers = [(await session.send("a")).response for session in (first, second, first)]

    assert answers == ["a", "a", "a a"]
    for session in (first, second, second):
        await session.close()
    assert (desk.open, sorted(desk.closed)) == ({}, ["s1", "s2"])


async def test_a_single_message_has_a_session_too(backend, desk):
    assert (await backend.invoke_once("a")).response == "a"

    assert (desk.open, desk.closed) == ({}, ["s1"])


async def test_a_session_is_closed_after_a_failure(backend, server, desk):
    server.when(lambda request: request.path.endswith("messages"), status=400, content="no")

    with pytest.raises(BackendSessionError, match="HTTP 400"):
        await backend.invoke_once("a")

    assert (desk.open, desk.closed) == ({}, ["s1"])


async def test_a_session_is_closed_when_the_message_is_cancelled(backend, server, desk):
    server.when(lambda request: request.path.endswith("messages"), fault="hang")
    asked = asyncio.create_task(backend.invoke_once("a"))
    await asyncio.to_thread(server.wait_for_requests, 2)

    asked.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (desk.open, desk.closed) == ({}, ["s1"])


async def test_a_session_that_begins_while_the_case_is_cancelled_is_closed(backend, server, desk):
    with server.held():
        asked = asyncio.create_task(backend.invoke_once("a"))
        await asyncio.to_thread(server.wait_for_requests, 1)
        asked.cancel()
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (desk.open, desk.closed) == ({}, ["s1"])


@pytest.mark.parametrize("fields", [{"status": 400}, {"fault": "hang"}], ids=["refused", "hangs"])
async def test_a_session_that_never_begins_does_not_hold_up_a_case_that_is_cancelled(
    backend, server, desk, monkeypatch, fields
):
    monkeypatch.setattr(http_backend, "CLOSE_S", 0.3)
    server.when(lambda request: request.path == "/sessions", **fields)
    asked = asyncio.create_task(backend.create_session())
    await asyncio.to_thread(server.wait_for_requests, 1)
    asked.cancel()

    with pytest.raises((asyncio.CancelledError, BackendError)):
        await asked
    assert desk.closed == []


async def test_a_service_that_ends_sessions_itself_is_not_asked_to(server, desk):
    backend = HttpBackend(config(server, closes=False), ONCE)

    await backend.invoke_once("a")
    await backend.teardown()

    assert [request.method for request in server.requests] == ["POST", "POST"]


async def test_the_first_request_may_have_the_earlier_messages_and_the_context(server):
    create = {"url": f"{server.root}/sessions", "id": "session.id"}
    create["request"] = {"so_far": "{messages}", "user": "{context}"}
    made = HttpBackend(config(server, session={"create": create}), ONCE)
    context = [{"role": "user", "content": "b"}]

    await made.in_context({"name": "kim"}).invoke_once("a", context)
    await made.teardown()

    assert server.requests[0].body == {"so_far": context, "user": {"name": "kim"}}


async def test_the_session_may_be_named_in_a_header(server, desk):
    headers = {"x-session": "{session_id}", "x-key": "k"}
    made = HttpBackend(config(server, headers=headers), ONCE)

    await made.invoke_once("a")
    await made.teardown()

    created, sent, closed = server.requests
    assert "x-session" not in created.headers
    assert sent.headers["x-session"] == closed.headers["x-session"] == "s1"
    assert created.headers["x-key"] == "k"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"id": 1}, ("the answer to 'session.create' has no 'session.id': it is an object with id;"
         " write in 'backend.session.create.id' where it is")),
        ({"session": {"id": None}}, ("the session has no id: 'session.id' of the answer to"
         " 'session.create' is null; write in 'backend.session.create.id' the path of a text or"
         " a number")),
        ({"session": {"id": ""}}, "the session has no id: 'session.id'"),
        ({"session": {"id": {"n": 1}}}, "the session has no id: 'session.id'"),
    ],
)  # fmt: skip
async def test_a_session_without_an_id_is_an_error(backend, server, answer, message):
    server.when(lambda request: request.path == "/sessions", json=answer)

    with pytest.raises(BackendSessionError) as raised:
        await backend.invoke_once("a")
    assert message in str(raised.value)


async def test_a_service_that_does_not_begin_a_session_is_an_error_within_the_limit(server):
    server.when(lambda request: request.path == "/sessions", fault="hang")
    made = HttpBackend(config(server), ExecutionConfig(max_retries=0, llm_timeout=0.3))

    with pytest.raises(BackendTimeoutError):
        await made.invoke_once("a")
    await made.teardown()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"status": 500, "content": "oh"}, "HTTP 500"),
        ({"fault": "hang"}, "TimeoutError"),
        ({"status": 404}, None),
    ],
    ids=["an error", "no answer", "gone already"],
)
async def test_a_session_that_cannot_be_closed_is_a_warning(
    backend, server, caplog, monkeypatch, fields, problem
):
    monkeypatch.setattr(http_backend, "CLOSE_S", 0.3)
    server.when(lambda request: request.method == "DELETE", **fields)

    assert (await backend.invoke_once("a")).response == "a"

    assert len(caplog.messages) == (problem is not None)
    assert problem is None or problem in caplog.messages[0]


async def test_a_function_that_fails_while_a_session_is_closed_costs_no_answer(
    server, tmp_path, caplog
):
    (tmp_path / "shop.py").write_text(
        "def prepare(request):\n    assert request['method'] != 'DELETE'\n    return request\n"
    )
    made = HttpBackend(config(server, prepare="shop:prepare"), ONCE, tmp_path)

    assert (await made.invoke_once("a")).response == "a"
    await made.teardown()

    assert "ending a session of the service failed: AssertionError" in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"session": None}, "'{session_id}' needs 'session'"),
        ({"url": "http://x/messages"}, "'session' needs '{session_id}' in 'url'"),
        ({"session": {"create": {"url": "http://x", "id": "id"}, "close": {"url": "http://x"}}},
         "names no session; write '{session_id}'"),
        ({"session": {"create": {"url": "http://x"}}}, "session.create.id\n"),
    ],
)  # fmt: skip
def test_a_session_that_no_request_names_is_refused(server, changes, message):
    with pytest.raises(ValueError, match="1 validation error") as raised:
        config(server, **changes)
    assert message in str(raised.value)


async def test_a_closed_conversation_takes_no_message(backend):
    session = await backend.create_session()
    await session.close()

    with pytest.raises(BackendError, match="is closed"):
        await session.send("a")
