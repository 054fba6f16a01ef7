"""MCP servers as what is tested: real servers of the SDK, in processes and on loopback."""

import asyncio
import os
import socket
import sys
import textwrap
import threading

import pytest
import yaml

from holodeck.errors import BackendInitError, BackendSessionError, BackendTimeoutError
from holodeck.lib.backends.mcp_backend import McpBackend, parse_call
from holodeck.models.backend import McpBackendConfig
from holodeck.models.config import ExecutionConfig
from support.cli import run_cli
from support.mcp_servers import serve
from support.processes import descendants

SERVER = '''
import os
import sys
import time

from mcp.server.fastmcp import FastMCP
from pydantic import BaseModel

server = FastMCP("orders")
calls = 0


class Order(BaseModel):
    order_id: int
    status: str


@server.tool()
def lookup_order(order_id: int) -> Order:
    """Look an order up."""
    if order_id == 0:
        raise ValueError("no such order")
    return Order(order_id=order_id, status="late")


@server.tool(structured_output=False)
def count() -> str:
    """Count the calls of this process."""
    global calls
    calls += 1
    return f"{calls} in {os.getpid()}"


@server.tool()
def hang() -> str:
    time.sleep(600)


@server.tool()
def crash() -> str:
    print("the disk is full", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def search(query: str) -> dict[str, list[str]]:
    return {"retrieval_context": [f"{query} is late"]}


if __name__ == "__main__":
    server.run()
'''
PATIENT = ExecutionConfig(llm_timeout=600)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "server.py").write_text(SERVER)
    return tmp_path


def backend_of(folder, *command, timeout=600, **fields):
    fields = fields or {"command": list(command) or [sys.executable, "server.py"]}
    config = McpBackendConfig(type="mcp", **fields)
    return McpBackend(config, folder, ExecutionConfig(llm_timeout=timeout))


def children():
    """Return the ids of the processes below this one."""
    return set(descendants(os.getpid()))


async def test_structured_data_with_passages_says_what_was_retrieved(folder):
    backend = backend_of(folder)

    result = await backend.invoke_once('search {"query": "Order 7"}')

    assert result.retrieval_context == ["Order 7 is late"]
    assert (await backend.invoke_once('lookup_order {"order_id": 7}')).retrieval_context is None


async def test_the_result_of_a_tool_is_the_response_and_the_evidence(folder):
    result = await backend_of(folder).invoke_once('lookup_order {"order_id": 7}')

    assert result.structured_output == {"order_id": 7, "status": "late"}
    assert '"status": "late"' in result.response
    assert result.tool_calls == [
        {"name": "lookup_order", "arguments": {"order_id": 7}, "call_id": "call_1"}
    ]
    [returned] = result.tool_results
    assert (returned["result"], "is_error" in returned) == (result.structured_output, False)
    assert result.tools == ["lookup_order", "count", "hang", "crash", "search"]
    assert result.token_usage is None


@pytest.mark.parametrize(
    ("arguments", "said"), [('{"order_id": 0}', "no such order"), ("{}", "Field required")]
)
async def test_an_error_of_a_tool_is_evidence(folder, arguments, said):
    result = await backend_of(folder).invoke_once(f"lookup_order {arguments}")

    [returned] = result.tool_results
    assert returned["is_error"] is True
    assert said in returned["result"]
    assert said in result.response


async def test_the_tools_and_their_schemas_are_an_answer(folder):
    result = await backend_of(folder).invoke_once("tools/list")

    lookup = result.structured_output[0]
    assert (lookup["name"], lookup["description"]) == ("lookup_order", "Look an order up.")
    assert lookup["inputSchema"]["required"] == ["order_id"]
    assert lookup["outputSchema"]["required"] == ["order_id", "status"]
    assert result.tool_calls == []


async def test_a_server_gets_its_own_variables_and_no_keys_of_holodeck(folder, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("LANG", "C.UTF-8")
    names = "SHOP_TOKEN|LANG|OPENAI_API_KEY"  # a message has room for some hundred characters only
    command = ["/bin/sh", "-c", f"env | grep -E '^({names})=' >&2; exit 1"]
    backend = backend_of(folder, command=command, env={"SHOP_TOKEN": "t0p"})

    with pytest.raises(BackendInitError) as caught:
        await backend.initialize()

    assert "SHOP_TOKEN=t0p" in str(caught.value)
    assert "LANG=C.UTF-8" in str(caught.value)
    assert "OPENAI_API_KEY" not in str(caught.value)


async def test_each_conversation_has_a_process_that_ends_with_it(folder):
    before = children()
    backend = backend_of(folder)
    await backend.initialize()
    sessions = await asyncio.gather(*(backend.create_session() for _ in range(2)))

    counts = [(await session.send("count")).response for session in (*sessions, sessions[0])]
    for session in (*sessions, sessions[0]):
        await session.close()
    await backend.teardown()

    assert [one.partition(" in ")[0] for one in counts] == ["1", "1", "2"]
    assert counts[0].partition(" in ")[2] == counts[2].partition(" in ")[2]
    assert children() == before


async def test_a_crash_is_an_error_with_the_last_lines(folder):
    before = children()

    with pytest.raises(BackendSessionError, match=r"the MCP server failed.*the disk is full"):
        await backend_of(folder).invoke_once("crash")

    assert children() == before


async def test_a_hanging_tool_ends_with_the_time_limit(folder):
    before = children()
    session = await backend_of(folder, timeout=None).create_session()
    session._timeout = 0.3

    with pytest.raises(BackendTimeoutError, match=r"0\.3 s"):
        await session.send("hang")
    await session.close()

    assert children() == before


async def test_a_server_that_never_answers_ends_with_the_time_limit(folder):
    before = children()
    backend = backend_of(folder, sys.executable, "-c", "input(); input()", timeout=0.5)

    with pytest.raises(BackendTimeoutError):
        await backend.initialize()

    assert children() == before


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["./missing"], "FileNotFoundError"),
        ([sys.executable, "-c", "raise SystemExit('no licence')"], "no licence"),
    ],
    ids=["missing", "exits"],
)
async def test_a_server_that_does_not_start_is_an_error(folder, command, said):
    before = children()

    with pytest.raises(BackendInitError, match=said):
        await backend_of(folder, *command).initialize()

    assert children() == before


async def test_an_unknown_tool_and_earlier_messages_are_errors(folder):
    backend = backend_of(folder)

    with pytest.raises(BackendSessionError, match="no tool 'lookup_orders'; did you mean 'lookup"):
        await backend.invoke_once("lookup_orders {}")
    with pytest.raises(BackendSessionError, match="takes no earlier messages"):
        await backend.invoke_once("count", [{"role": "user", "content": "hello"}])
    assert (
        backend.capabilities.history_problems["invoke_once"]
        == "an MCP server takes no earlier messages"
    )


@pytest.mark.parametrize("text", ["Where is order 7?", "lookup_order {order: 7}", "", "a [1]"])
def test_an_input_that_is_no_call_says_what_to_write(text):
    with pytest.raises(BackendSessionError, match="is a tool and its arguments as JSON, such as"):
        parse_call(text)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("count", ("count", {})),
        ('look {"a": {"b": [1]}}', ("look", {"a": {"b": [1]}})),
        ('look{"a": 1}\n', ("look", {"a": 1})),
    ],
)
def test_an_input_is_a_tool_and_its_arguments(text, call):
    assert parse_call(text) == call


@pytest.fixture
def url(folder):
    """The URL of the server, which serves HTTP from a thread."""
    import uvicorn

    namespace = {"__name__": "server"}
    exec(compile(SERVER, "server.py", "exec"), namespace)
    listener = socket.create_server(("127.0.0.1", 0))
    app = namespace["server"].streamable_http_app()
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    server.should_exit = True
    thread.join()
    listener.close()


async def test_a_server_at_a_url_is_called(folder, url):
    backend = backend_of(folder, url=url, headers={"x-team": "orders"})
    await backend.initialize()
    session = await backend.create_session()

    result = await session.send('lookup_order {"order_id": 7}')
    await session.close()

    assert result.structured_output == {"order_id": 7, "status": "late"}


async def test_a_url_where_nothing_listens_is_an_error(folder):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    with pytest.raises(BackendInitError, match="the MCP server failed: ConnectError"):
        await backend_of(folder, url=f"http://127.0.0.1:{port}/mcp").initialize()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "write either 'command'"),
        ({"command": ["a"], "url": "http://a"}, "write either 'command'"),
        ({"command": ["a"], "headers": {"a": "b"}}, "'headers' needs 'url'"),
        ({"url": "http://a", "env": {"a": "b"}}, "'env' needs 'command'"),
    ],
)
def test_a_wrong_backend_says_what_to_write(fields, message):
    with pytest.raises(ValueError, match=message):
        McpBackendConfig(type="mcp", **fields)


def test_cases_test_a_server(folder):
    agent = {
        "name": "orders",
        "backend": {"type": "mcp", "command": [sys.executable, "server.py"]},
        "test_cases": [
            {
                "input": 'lookup_order {"order_id": 7}',
                "expected_tools": [{"name": "lookup_order", "result": {"contains": "late"}}],
            },
            {
                "input": 'lookup_order {"order_id": 0}',
                "expected_tools": [{"name": "lookup_order", "error": True}],
            },
            {
                "input": "tools/list",
                "evaluations": [{"metric": "json_schema", "schema": {"minItems": 4}}],
            },
        ],
    }
    (folder / "agent.yaml").write_text(yaml.safe_dump(agent))

    done = run_cli("test", "agent.yaml", cwd=folder)

    assert (done.code, done.stderr) == (0, "")
    assert "3/3 passed" in done.stdout


def test_validate_finds_a_program_that_is_missing(folder):
    (folder / "agent.yaml").write_text(
        textwrap.dedent("""
            name: orders
            backend: {type: mcp, command: [./servr.py]}
            test_cases: [{input: count}]
        """)
    )

    done = run_cli("validate", "agent.yaml", cwd=folder)

    assert done.code != 0
    assert "program not found: './servr.py'" in done.stdout + done.stderr
    assert "did you mean 'server.py'" in done.stdout + done.stderr


async def test_a_server_that_never_answers_the_end_of_a_session_does_not_keep_the_run(
    folder, monkeypatch
):
    monkeypatch.setattr("holodeck.lib.mcp_client.connection.CLOSE_S", 0.2)
    with serve("http", takes_leave=False) as url:
        session = await backend_of(folder, url=url).create_session()
        result = await session.send('lookup_order {"order_id": 7}')

        async with asyncio.timeout(60):  # the client of the SDK waits for five minutes
            await session.close()

    assert result.structured_output == {"order_id": 7, "status": "late"}
