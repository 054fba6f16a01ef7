"""Agents that speak A2A: a real server of a2a-sdk on loopback."""

import asyncio
import socket

import pytest

from fakes import FakeOpenAI
from holodeck.errors import (
    BackendError,
    BackendInitError,
    BackendSessionError,
    BackendTimeoutError,
)
from holodeck.lib.backends.a2a_backend import A2aBackend
from holodeck.models.backend import A2aBackendConfig
from holodeck.models.config import ExecutionConfig
from support.a2a_service import Support, serving_a2a

DATA = {"city": "Bonn", "items": [{"a": [2], "b": 1}], "late": True, "n": 3, "weight": 1.5}
DATA_TEXT = (
    '{"city": "Bonn", "id": 1.2345678901234567e+19, "items": [{"a": [2], "b": 1}],'
    ' "late": true, "n": 3, "weight": 1.5}'
)


@pytest.fixture(params=[True, False], ids=["streaming", "whole"])
def url(request):
    with serving_a2a(streaming=request.param) as url:
        yield url


@pytest.fixture
async def backend(url):
    backend = backend_at(url)
    yield backend
    await backend.teardown()


def backend_at(url, **settings):
    config = A2aBackendConfig(type="a2a", url=url, **{"headers": {"x-team": "orders"}} | settings)
    return A2aBackend(config, ExecutionConfig(llm_timeout=600))


async def test_a_message_is_the_response(backend):
    result = await backend.invoke_once("message")

    assert (result.response, result.agents) == ("OK: ['message']", ["support"])
    assert (result.tool_calls, result.token_usage) == (None, None)


async def test_the_artifacts_of_a_task_are_the_response(backend):
    assert (await backend.invoke_once("Where is 7?")).response == "It is late: ['Where is 7?']"


async def test_data_has_one_order_of_keys_and_whole_numbers(backend):
    result = await backend.invoke_once("data")

    assert result.response == DATA_TEXT
    assert result.structured_output == DATA | {"id": 1.2345678901234567e19}
    assert type(result.structured_output["n"]) is int


async def test_data_with_passages_says_what_was_retrieved(backend):
    result = await backend.invoke_once("search")

    assert (result.response, result.retrieval_context) == ("Late.", ["[7.md] It is late."])
    assert (await backend.invoke_once("data")).retrieval_context is None


@pytest.mark.parametrize(("message", "response"), [("progress", ""), ("status", "It is late.")])
async def test_only_the_last_status_is_a_response_however_it_is_sent(backend, message, response):
    session = await backend.create_session()

    pieces = [piece async for piece in session.send_streaming(message)]

    assert (await backend.invoke_once(message)).response == response
    assert "".join(pieces) == response


async def test_a_conversation_has_a_context_of_its_own(backend):
    sessions = [await backend.create_session() for _ in range(2)]

    answers = [
        (await session.send(message)).response
        for session, message in zip((*sessions, sessions[0]), ("one", "two", "three"), strict=True)
    ]

    assert answers == ["It is late: ['one']", "It is late: ['two']", "It is late: ['one', 'three']"]


async def test_a_task_that_waits_for_input_goes_on_with_the_next_message(backend):
    session = await backend.create_session()

    first, second = await session.send("ask"), await session.send("seven")

    assert first.response == "Which one?"
    assert second.response == "It is late: ['ask', 'seven']"


async def test_a_task_that_fails_is_an_error_and_the_conversation_goes_on(backend):
    session = await backend.create_session()

    with pytest.raises(BackendSessionError, match="the task is failed: no stock"):
        await session.send("fail")

    assert (await session.send("one")).response == "It is late: ['fail', 'one']"


async def test_artifacts_stream_in_pieces():
    with serving_a2a(streaming=True) as url:
        backend = backend_at(url)
        session = await backend.create_session()

        pieces = [piece async for piece in session.send_streaming("7")]
        await backend.teardown()

    assert pieces == ["It", " is", " late: ['7']"]


async def test_a_task_that_hangs_ends_with_the_time_limit(url, monkeypatch):
    backend = backend_at(url)
    await backend.initialize()
    monkeypatch.setattr(backend, "_timeout", 0.5)  # of the message, not of the connection
    before = asyncio.all_tasks()

    with pytest.raises(BackendTimeoutError):
        await backend.invoke_once("hang")

    assert asyncio.all_tasks() == before
    await backend.teardown()


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "whole"])
async def test_the_time_limit_cancels_the_task_that_the_agent_works_on(streaming):
    agent = Support()
    with serving_a2a(streaming=streaming, agent=agent) as url:
        backend = backend_at(url)
        session = await backend.create_session()
        await session.send("ask")
        session._timeout = 0.5  # of the next message only

        with pytest.raises(BackendTimeoutError, match=r"no answer within 0\.5 s"):
            await session.send("hang")
        await backend.teardown()

        assert await asyncio.to_thread(agent.is_canceled.wait, 60)


async def test_a_turn_that_is_cancelled_cancels_the_task_that_the_agent_has_named():
    agent = Support()
    with serving_a2a(streaming=True, agent=agent) as url:
        backend = backend_at(url)
        session = await backend.create_session()
        has_begun = asyncio.Event()

        async def read():
            async for _ in session.send_streaming("begin, then hang"):
                has_begun.set()

        reading = asyncio.create_task(read())
        await has_begun.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await backend.teardown()

        assert await asyncio.to_thread(agent.is_canceled.wait, 60)


async def test_a_task_that_has_ended_is_not_canceled():
    agent = Support()
    with serving_a2a(streaming=True, agent=agent) as url:
        backend = backend_at(url)
        for message in ("message", "data", "progress", "ask"):
            await backend.invoke_once(message)
        await backend.teardown()

    assert not agent.is_canceled.is_set()


async def test_a_card_that_names_another_host_does_not_get_the_headers():
    with serving_a2a(streaming=True, host="localhost") as url:
        with pytest.raises(BackendInitError) as refused:
            await backend_at(url).initialize()
        port = url.rpartition(":")[2]
        key = f'allowed_hosts: ["localhost:{port}"]'

        assert str(refused.value) == (
            f"the agent card of {url} names http://localhost:{port}, to which 'headers' are not"
            f" sent unless it is allowed; write '{key}' in 'backend'"
        )


@pytest.mark.parametrize(
    "settings", [{"allowed_hosts": ["localhost"]}, {"headers": {}}], ids=["allowed", "no headers"]
)
async def test_a_card_may_name_another_host_that_is_allowed_or_gets_no_headers(settings):
    with serving_a2a(streaming=True, host="localhost") as url:
        backend = backend_at(url, **settings)

        assert (await backend.invoke_once("message")).response == "OK: ['message']"
        await backend.teardown()


@pytest.fixture
def service():
    """A server with a card, and whatever its answers to messages are."""
    with FakeOpenAI() as server:
        yield server


def card_of(service, **fields):
    interface = {"protocolBinding": "JSONRPC", "protocolVersion": "1.0", "url": service.root}
    return {"name": "support", "supportedInterfaces": [interface], **fields}


@pytest.mark.parametrize("is_card", [True, False], ids=["of the card", "of the agent"])
async def test_a_redirect_is_not_followed(service, is_card):
    with FakeOpenAI() as elsewhere:
        if not is_card:
            service.reply(json=card_of(service))
        service.reply(status=307, headers={"location": f"{elsewhere.root}/other"})
        backend = backend_at(service.root)

        with pytest.raises(BackendError, match="HTTP 307: the URL redirects; write the URL that"):
            await backend.invoke_once("hello")
        await backend.teardown()

        assert elsewhere.requests == []


@pytest.mark.parametrize("result", [{}, {"task": 3}, [1]], ids=["empty", "no task", "list"])
@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "whole"])
async def test_a_response_of_another_shape_is_an_error(service, streaming, result):
    service.reply(json=card_of(service, capabilities={"streaming": streaming}))
    service.reply(json={"jsonrpc": "2.0", "id": "1", "result": result})
    backend = backend_at(service.root)

    with pytest.raises(BackendSessionError, match="the agent's response does not follow A2A"):
        await backend.invoke_once("hello")
    await backend.teardown()


async def test_the_url_of_a_card_is_taken_too(url):
    backend = backend_at(f"{url}/.well-known/agent-card.json")

    assert (await backend.invoke_once("message")).response == "OK: ['message']"
    await backend.teardown()


@pytest.mark.parametrize("path", ["", "/elsewhere"], ids=["nothing listens", "no card"])
async def test_a_card_that_cannot_be_read_is_an_error(url, path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"http://127.0.0.1:{listener.getsockname()[1]}"

    with pytest.raises(BackendInitError, match="the agent card cannot be read"):
        await backend_at(url + path if path else closed).initialize()


async def test_earlier_messages_are_refused(backend):
    assert "takes no earlier messages" in backend.capabilities.history_problems["invoke_once"]
    with pytest.raises(BackendSessionError, match="takes no earlier messages"):
        await backend.invoke_once("message", [{"role": "user", "content": "hello"}])
