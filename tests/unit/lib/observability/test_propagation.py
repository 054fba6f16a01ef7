"""The trace of a run goes on in whatever serves the agent: real servers and processes."""

import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from opentelemetry import trace

from fakes import FakeOpenAI
from holodeck.lib.backends.a2a_backend import A2aBackend
from holodeck.lib.backends.http_backend import HttpBackend
from holodeck.lib.backends.mcp_backend import McpBackend
from holodeck.lib.backends.process.backend import ProcessBackend
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.observability import propagation_headers
from holodeck.lib.observability.tracing import begin_trace
from holodeck.models.backend import (
    A2aBackendConfig,
    HttpBackendConfig,
    McpBackendConfig,
    ProcessBackendConfig,
)
from support.a2a_service import serving_a2a

AGENT = """
import asyncio
from opentelemetry import propagate

def current():
    headers = {}
    propagate.inject(headers)
    return headers.get("traceparent", "none")

def answer(message):
    return current()

async def answer_async(message):
    return await asyncio.to_thread(current)
"""


@contextmanager
def serving_mcp():
    """A server of the MCP SDK on loopback whose tool returns the header; yields its URL."""
    import uvicorn
    from mcp.server.fastmcp import Context, FastMCP

    server = FastMCP("traced", stateless_http=True)

    async def traceparent(context: Context) -> str:
        return context.request_context.request.headers.get("traceparent", "none")

    server.tool()(traceparent)
    listener = socket.create_server(("127.0.0.1", 0))
    app = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error"))
    thread = threading.Thread(target=app.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        app.should_exit = True
        thread.join()
        listener.close()


@contextmanager
def in_a_trace(trace_id=1):
    with begin_trace(trace_id, span_id=2):
        yield propagation_headers()["traceparent"]


async def ask_in_a_trace(session, message="go"):
    """Send a message in two traces and in none; the responses, and the two `traceparent`s."""
    expected, responses = [], []
    for trace_id in (1, 2):
        with in_a_trace(trace_id) as traceparent:
            expected.append(traceparent)
            responses.append((await session.send(message)).response)
    responses.append((await session.send(message)).response)
    return responses, [*expected, "none"]


async def test_requests_to_a_url_have_the_headers_and_the_users_own_win():
    with FakeOpenAI() as server:
        server.otherwise(json={"response": "OK"})
        request = {"messages": "{messages}"}
        config = {"type": "http", "url": f"{server.root}/agent", "request": request}
        backend = HttpBackend(HttpBackendConfig(**config))
        session = await backend.create_session()
        _, expected = await ask_in_a_trace(session)
        await backend.teardown()
        own = HttpBackend(HttpBackendConfig(**config, headers={"Traceparent": "mine"}))
        with in_a_trace():
            await own.invoke_once("go")
        await own.teardown()

    sent = [request.headers.get("traceparent", "none") for request in server.requests]
    assert sent == [*expected, "mine"]


async def test_messages_to_an_a2a_agent_have_the_headers():
    with serving_a2a(streaming=False) as url:
        backend = A2aBackend(A2aBackendConfig(type="a2a", url=url))
        responses, expected = await ask_in_a_trace(await backend.create_session(), "traceparent")
        await backend.teardown()

    assert responses == expected


async def test_every_call_of_an_mcp_tool_has_the_headers_of_its_own_trace():
    with serving_mcp() as url:
        backend = McpBackend(McpBackendConfig(type="mcp", url=url), None)
        session = await backend.create_session()
        responses, expected = await ask_in_a_trace(session, "traceparent {}")
        await session.close()

    assert responses == expected


@pytest.mark.parametrize("function", ["answer", "answer_async"])
@pytest.mark.parametrize("kind", ["process", "callable"])
async def test_the_trace_is_current_where_python_code_runs(tmp_path, function, kind):
    (tmp_path / f"traced_{function}.py").write_text(AGENT)
    target = f"traced_{function}:{function}"
    if kind == "process":
        config = ProcessBackendConfig(type="process", target=target)
        backend = ProcessBackend(config, tmp_path)
    else:
        backend = CallableBackend(target, tmp_path)
    await backend.initialize()
    session = await backend.create_session()
    responses, expected = await ask_in_a_trace(session)
    await session.close()
    await backend.teardown()

    assert responses == expected


async def test_processes_that_do_not_ask_for_the_trace_do_not_get_it(tmp_path):
    (tmp_path / "agent.py").write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    request = json.loads(line)\n"
        "    answer = {'response': json.dumps(request['params'])}\n"
        "    answer = {'protocol': 1} if request['method'] == 'initialize' else answer\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': request['id'], 'result': answer}),"
        " flush=True)\n"
    )
    config = ProcessBackendConfig(type="process", command=[sys.executable, "agent.py"])
    backend = ProcessBackend(config, tmp_path)
    await backend.initialize()
    with in_a_trace():
        result = await backend.invoke_once("go")
    await backend.teardown()

    assert '"message": "go"' in result.response
    assert "trace" not in result.response


def test_a_span_that_is_recorded_is_continued_until_another_trace_begins():
    from opentelemetry.sdk.trace import TracerProvider

    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    with tracer.start_as_current_span("outer") as outer:
        continued = propagation_headers()["traceparent"]
        with in_a_trace() as begun:
            pass

    ids = outer.get_span_context()
    assert continued.startswith(f"00-{ids.trace_id:032x}-{ids.span_id:016x}-")
    assert begun == f"00-{1:032x}-{2:016x}-01"
    assert not trace.get_current_span().get_span_context().is_valid
    assert propagation_headers() == {}


def test_traceparent_is_sent_also_where_the_process_uses_other_headers(tmp_path):
    code = (
        "from holodeck.lib.observability import propagation_headers\n"
        "from holodeck.lib.observability.tracing import begin_trace\n"
        "assert propagation_headers() == {}\n"
        "with begin_trace(1, 2):\n"
        "    assert propagation_headers() == {'traceparent': f'00-{1:032x}-{2:016x}-01'}\n"
    )

    subprocess.run(
        [sys.executable, "-c", code], check=True, env={"OTEL_PROPAGATORS": "baggage", "HOME": "/"}
    )
