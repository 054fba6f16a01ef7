"""The scripted backend keeps the protocol, and counts what it is asked."""

import asyncio

import pytest

from fakes import ScriptedBackend
from holodeck.errors import BackendError, BackendInitError, BackendSessionError
from holodeck.lib.backends.base import AgentBackend, AgentSession, ExecutionResult


@pytest.fixture
async def backend():
    backend = ScriptedBackend()
    await backend.initialize()
    return backend


async def test_it_keeps_the_protocol(backend):
    assert isinstance(backend, AgentBackend)
    assert isinstance(await backend.create_session(), AgentSession)


async def test_without_a_script_it_echoes_and_remembers_the_call(backend):
    result = await backend.invoke_once("hi", [{"role": "user", "content": "before"}])

    assert result == ExecutionResult(response="OK: hi", tool_calls=[])
    assert backend.messages == ["hi"]
    assert backend.calls[0].context == ({"role": "user", "content": "before"},)


@pytest.mark.parametrize(
    "script",
    [
        {"hi": "ho"},
        lambda message: message.replace("i", "o"),
        {"hi": ExecutionResult(response="ho")},
    ],
    ids=["mapping", "callable", "result"],
)
async def test_a_script_answers(script):
    backend = ScriptedBackend(script)
    await backend.initialize()

    assert (await backend.invoke_once("hi")).response == "ho"


async def test_a_script_may_be_async():
    async def script(message):
        await asyncio.sleep(0)
        return message.upper()

    backend = ScriptedBackend(script)
    await backend.initialize()

    assert (await backend.invoke_once("hi")).response == "HI"


async def test_a_scripted_error_is_raised():
    backend = ScriptedBackend({"hi": BackendSessionError("no line")})
    await backend.initialize()

    with pytest.raises(BackendSessionError, match="no line"):
        await backend.invoke_once("hi")
    with pytest.raises(LookupError, match="no answer to 'ho'"):
        await backend.invoke_once("ho")


async def test_it_is_used_between_initialize_and_teardown_only(backend):
    await backend.teardown()
    await backend.teardown()

    with pytest.raises(BackendError, match="before initialize or after teardown"):
        await backend.invoke_once("hi")
    assert (backend.initialized, backend.torn_down) == (1, 2)


async def test_initialize_can_fail():
    with pytest.raises(BackendInitError, match="refused"):
        await ScriptedBackend(init_error=BackendInitError("refused")).initialize()


async def test_it_counts_concurrency_and_cancellation():
    everyone = asyncio.Barrier(4)

    async def script(message):
        await everyone.wait()
        return await asyncio.get_running_loop().create_future()

    backend = ScriptedBackend(script)
    await backend.initialize()
    tasks = [asyncio.ensure_future(backend.invoke_once(str(i))) for i in range(3)]
    await everyone.wait()

    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert (backend.peak_in_flight, backend.in_flight, backend.cancelled) == (3, 0, 3)


async def test_a_session_remembers_and_closes(backend):
    session = await backend.create_session()
    await session.send("one")
    said = [piece async for piece in session.send_streaming("two words")]
    await session.close()

    assert "".join(said).strip() == "OK: two words"
    assert [m["content"] for m in backend.calls[1].context] == ["one", "OK: one"]
    assert backend.calls[1].session == 0
    with pytest.raises(BackendSessionError, match="after close"):
        await session.send("three")
