"""Agents that speak A2A: a real server of a2a-sdk on loopback."""

import asyncio
import socket

import pytest

from holodeck.errors import BackendInitError, BackendSessionError, BackendTimeoutError
from holodeck.lib.backends.a2a_backend import A2aBackend
from holodeck.models.backend import A2aBackendConfig
from holodeck.models.config import ExecutionConfig
from support.a2a_service import serving_a2a


@pytest.fixture(params=[True, False], ids=["streaming", "whole"])
def url(request):
    with serving_a2a(streaming=request.param) as url:
        yield url


@pytest.fixture
async def backend(url):
    backend = backend_at(url)
    yield backend
    await backend.teardown()


def backend_at(url):
    config = A2aBackendConfig(type="a2a", url=url, headers={"x-team": "orders"})
    return A2aBackend(config, ExecutionConfig(llm_timeout=600))


async def test_a_message_is_the_response(backend):
    result = await backend.invoke_once("message")

    assert (result.response, result.agents) == ("OK: ['message']", ["support"])
    assert (result.tool_calls, result.token_usage) == (None, None)


async def test_the_artifacts_of_a_task_are_the_response(backend):
    assert (await backend.invoke_once("Where is 7?")).response == "It is late: ['Where is 7?']"


async def test_data_is_structured_output(backend):
    result = await backend.invoke_once("data")

    assert (result.response, result.structured_output) == ('{"late": true}', {"late": True})


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
    assert "takes no earlier messages" in backend.history_problem("invoke_once")
    with pytest.raises(BackendSessionError, match="takes no earlier messages"):
        await backend.invoke_once("message", [{"role": "user", "content": "hello"}])
