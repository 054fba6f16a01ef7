"""Tools of MCP servers: real servers of the SDK, and one that fails in every way."""

import asyncio
import base64
import os
import signal
import sys

import pytest
import yaml

import support.mcp_faults as faults
import support.mcp_servers as servers
from fakes import Reply, start_cli
from holodeck.config.secrets import collect
from holodeck.errors import BackendInitError, ConfigError
from holodeck.lib.backends.selector import BackendSelector
from holodeck.lib.tools.base import run_tool
from holodeck.lib.tools.mcp import McpServer
from holodeck.lib.tools.toolbox import Toolbox, ToolContext
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.tool import McpTool
from support.processes import descendants, is_running, until, until_gone

LONG_S = 600


def entry(command=None, *arguments, name="orders", **fields):
    """An entry of `tools` for a command."""
    entry = {"type": "mcp", "name": name, "request_timeout": LONG_S, "timeout": LONG_S}
    if command is not None:
        entry |= {"command": command[0], "args": [*command[1:], *arguments]}
    return entry | fields


def toolbox(folder, *entries, environment=None):
    agent = {
        "name": "shop",
        "model": {"provider": "openai", "name": "fake", "endpoint": "http://127.0.0.1:1/v1"},
        "instructions": {"inline": "Help."},
        "tools": list(entries),
    }
    agent = Agent.model_validate(agent).with_base_dir(folder)
    return Toolbox(ToolContext(agent, environment=environment or {}))


@pytest.fixture
async def opened(tmp_path):
    """Opens entries and returns their tools by name; no process outlives the test."""
    boxes = []

    async def open_tools(*entries, **options):
        boxes.append(toolbox(tmp_path, *entries, **options))
        return {tool.name: tool for tool in await boxes[-1].open()}

    before = set(descendants(os.getpid()))
    yield open_tools
    for box in boxes:
        await box.close()
        await box.close()
    assert set(descendants(os.getpid())) == before


CALLS = [
    ("lookup_order", {"order_id": 7}),
    ("lookup_order", {"order_id": 0}),
    ("ship-to", {"address": {"city": "Paris"}, "settings": "slow"}),
    ("ship-to", {"town": "Paris"}),
    ("files_search", {"text": "hit"}),
    ("picture", {}),
]


def sent_image(request):
    """The text and the image in base64 of the last message, in the protocol of the request."""
    last = request.body["messages"][-1]
    if request.dialect == "ollama":
        return last["content"], last["images"][0]
    text, image = last["content"]
    if request.dialect == "anthropic":
        assert image["source"]["media_type"] == "image/png"
        return text["text"], image["source"]["data"]
    return text["text"], image["image_url"]["url"].removeprefix("data:image/png;base64,")


@pytest.mark.parametrize(
    ("backend", "provider"),
    [
        ("chat", "openai"),
        ("semantic_kernel", "openai"),
        ("semantic_kernel", "anthropic"),
        ("semantic_kernel", "ollama"),
    ],
)
async def test_a_model_gets_the_tools_of_a_server_beside_functions(
    backend, provider, tmp_path, fake_openai
):
    (tmp_path / "own.py").write_text("def greet(name: str) -> str:\n    return f'hello {name}'\n")
    fake_openai.reply(Reply(tool_calls=[*CALLS, ("greet", {"name": "Ann"})])).reply("done")
    agent = Agent.model_validate(
        {
            "name": "shop",
            "backend": backend,
            "model": {
                "provider": provider,
                "name": "fake",
                "endpoint": fake_openai.url if provider == "openai" else fake_openai.root,
                "api_key": "not-a-real-key",
            },
            "instructions": {"inline": "Help."},
            "tools": [
                entry(servers.COMMAND, is_retrieval=True),
                {"type": "function", "name": "greet", "file": "own.py", "function": "greet"},
            ],
        }
    ).with_base_dir(tmp_path)
    limits = ExecutionConfig(llm_timeout=LONG_S)
    built = await BackendSelector.select(agent, execution=limits)
    try:
        result = await built.invoke_once("hi")
    finally:
        await built.teardown()

    first, second = fake_openai.requests
    functions = [one.get("function", one) for one in first.body["tools"]]
    offered = {one["name"]: one for one in functions}
    assert [*offered][:3] == ["lookup_order", "ship-to", "files_search"]
    assert result.tools == [*offered]
    assert offered["lookup_order"]["description"] == "Look an order up."
    schema = offered["ship-to"]["input_schema" if provider == "anthropic" else "parameters"]
    assert schema["properties"]["address"] == {"$ref": "#/$defs/Address"}
    assert schema["$defs"]["Address"]["required"] == ["city"]
    assert [call["name"] for call in result.tool_calls] == [*(name for name, _ in CALLS), "greet"]
    late, missing, shipped, invalid, hits, picture, hello = result.tool_results
    assert (late["result"], late["is_error"]) == ({"order_id": 7, "status": "late"}, False)
    assert "no such order" in missing["result"]
    assert (missing["is_error"], invalid["is_error"]) == (True, True)
    assert shipped["result"] == "shipped to Paris, slow"
    assert "Field required" in invalid["result"]
    assert (hits["passages"], invalid["passages"]) == (["hit 1", "hit 2"], [])
    assert (hello["result"], "passages" in hello) == ("hello Ann", False)
    assert picture["result"] == "[image/png, 16 bytes]"
    assert sent_image(second) == (
        "The images that the tools returned:",
        base64.b64encode(servers.PNG).decode(),
    )
    assert "shipped to Paris, slow" in second.tool_results


@pytest.mark.parametrize("transport", ["http", "sse", "websocket"])
async def test_servers_at_a_url_are_called_like_those_in_a_process(transport, opened):
    with servers.serve(transport) as url:
        tools = await opened(entry(transport=transport, url=url, headers={"x-key": "k"}))

        outcome = await run_tool(tools["lookup_order"], {"order_id": 7})
        failed = await run_tool(tools["lookup_order"], {"order_id": 0})
        picture = await run_tool(tools["picture"], {})

        assert outcome.result == {"order_id": 7, "status": "late"}
        assert "no such order" in failed.error
        [image] = picture.images
        assert (image.data, image.media_type) == (servers.PNG, "image/png")
        assert picture.result_text == "[image/png, 16 bytes]"
    gone = await run_tool(tools["lookup_order"], {"order_id": 7})
    assert "the MCP server 'orders' failed" in gone.error


@pytest.mark.parametrize(
    ("command", "limit", "said"),
    [
        (["./missing"], LONG_S, "No such file or directory"),
        ([*faults.COMMAND, "exits"], LONG_S, r"exit code 1; its last lines: no \\x1b\[31mlicence"),
        ([*faults.COMMAND, "hangs"], 0.5, r"was not ready within 0\.5 s.*sets 'timeout'"),
        ([*faults.COMMAND, "babbles"], LONG_S, r"it wrote to stdout.*: Welcome! \| \{broken"),
        ([*faults.COMMAND, "refuses"], LONG_S, "answered with an error: go away"),
        ([*faults.COMMAND, "protocol"], LONG_S, "Unsupported protocol version"),
    ],
    ids=["missing", "exits", "hangs", "babbles", "refuses", "protocol"],
)
async def test_a_server_that_does_not_start_is_an_error_within_its_limit(
    command, limit, said, opened
):
    with pytest.raises(BackendInitError, match=rf"^tools: the MCP server 'orders'.*{said}"):
        await opened(entry(command, timeout=limit))


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("crash", r"exit code 3; its last lines: the disk is \x1b[31mfull"),
        ("huge", "its message is larger than 10 MB"),
        ("invalid", "validation error"),
    ],
)
async def test_a_failure_during_a_call_is_its_error_and_the_next_call_works(tool, said, opened):
    tools = await opened(entry(faults.COMMAND))
    first = (await run_tool(tools["pid"], {})).result

    failed = await run_tool(tools[tool], {})
    second = (await run_tool(tools["pid"], {})).result

    assert said in failed.error
    assert (second == first) is (tool == "invalid")


async def test_a_call_without_a_result_ends_and_a_server_that_hangs_is_started_again(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("holodeck.lib.tools.mcp._PING_S", 0.3)
    patient = McpTool.model_validate(entry(faults.COMMAND))
    server = McpServer(patient, ToolContext(Agent.model_construct().with_base_dir(tmp_path)))
    tools = {tool.name: tool for tool in await server.open()}
    try:
        first = await run_tool(tools["pid"], {})
        server._config = patient.model_copy(update={"request_timeout": 0.3})
        failed = await run_tool(tools["hang"], {})
        server._config = patient
        second = await run_tool(tools["pid"], {})
    finally:
        await server.close()

    assert "gave no result of 'hang' within 0.3 s" in failed.error
    assert first.result != second.result


async def test_what_a_server_prints_between_messages_is_passed_over(opened):
    tools = await opened(entry(faults.COMMAND))

    assert (await run_tool(tools["babble"], {})).error is None


async def test_concurrent_calls_share_one_restart(opened):
    tools = await opened(entry(faults.COMMAND))
    await run_tool(tools["crash"], {})

    pids = await asyncio.gather(*(run_tool(tools["pid"], {}) for _ in range(3)))

    assert len({one.result for one in pids}) == 1


async def test_a_server_that_does_not_start_again_is_tried_once(opened, tmp_path):
    flag = tmp_path / "started"
    script = f'[ -e "{flag}" ] && exit 9; touch "{flag}"; exec "$@"'
    tools = await opened(entry(["/bin/sh", "-c", script, "sh", *faults.COMMAND]))
    await run_tool(tools["crash"], {})

    failed = await run_tool(tools["pid"], {})
    flag.unlink()
    again = await run_tool(tools["pid"], {})

    assert "exit code 9" in failed.error
    assert "exit code 9; it was not started again" in again.error


async def test_a_start_that_is_cancelled_at_any_moment_leaves_nothing_behind(opened):
    before = descendants(os.getpid())
    for moment in range(12):
        starting = asyncio.create_task(opened(entry(["sh", "-c", "sleep 600 & sleep 600"])))
        for _ in range(moment):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])

        assert descendants(os.getpid()) == before


async def test_a_cancelled_start_and_a_cancelled_call_leave_nothing_behind(opened):
    tools = await opened(entry(faults.COMMAND))
    before = set(descendants(os.getpid()))
    starting = asyncio.create_task(opened(entry([*faults.COMMAND, "hangs"])))
    await until(lambda: set(descendants(os.getpid())) != before)
    calling = asyncio.create_task(run_tool(tools["hang"], {}))
    await asyncio.sleep(0)
    for task in (starting, calling):
        task.cancel()
    ended = await asyncio.gather(starting, calling, return_exceptions=True)

    assert [type(one) for one in ended] == [asyncio.CancelledError] * 2
    assert set(descendants(os.getpid())) == before


def test_ctrl_c_ends_the_servers_too(tmp_path, fake_openai):
    agent = {
        "name": "shop",
        "backend": "chat",
        "model": {"provider": "openai", "name": "fake", "endpoint": fake_openai.url},
        "instructions": {"inline": "Help."},
        "tools": [entry(faults.COMMAND)],
        "test_cases": [{"input": "hi"}],
        "execution": {"llm_timeout": LONG_S},
    }
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(agent))
    fake_openai.reply(tool_calls=[("pid", {})]).reply(tool_calls=[("hang", {})])
    with start_cli("test", "agent.yaml", cwd=tmp_path) as run:
        pid = int(fake_openai.wait_for_requests(2)[1].messages[-1]["content"])
        assert is_running(pid)
        run.interrupt()
        ran = run.finish()

    assert ran.code == 130
    assert not is_running(pid)


async def test_a_server_ends_with_holodeck_even_if_that_is_killed(tmp_path):
    program = f"""
import asyncio, sys
from holodeck.lib.mcp_client.connection import McpConnection
from holodeck.lib.mcp_client.transports import ServerProcess

async def main():
    connection = McpConnection(ServerProcess({faults.COMMAND!r}, sys.argv[1], {{}}))
    await connection.open()
    print((await connection.call("pid", {{}})).content[0].text, flush=True)
    await connection.call("hang", {{}})

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, str(tmp_path)), stdout=asyncio.subprocess.PIPE
    )
    pid = int(await process.stdout.readline())

    process.send_signal(signal.SIGKILL)
    await process.wait()

    await until_gone(pid)


async def test_a_server_gets_its_own_variables_and_no_keys_of_holodeck(opened, tmp_path):
    (tmp_path / "server.env").write_text("FROM_FILE=a\nBOTH=file\nSHOP_TOKEN=t0p\n")
    script = "env >&2; exit 1"
    with pytest.raises(BackendInitError) as caught:
        await opened(
            entry(
                ["/bin/sh", "-c", script],
                env={"OWN": "b", "BOTH": "own"},
                env_file="server.env",
                config={"deep": [1]},
            ),
            environment={"OPENAI_API_KEY": "k", "LANG": "C", "https_proxy": "p"},
        )

    said = str(caught.value)
    for variable in ("OWN=b", "BOTH=own", "FROM_FILE=a", 'MCP_CONFIG={"deep": [1]}', "LANG=C"):
        assert variable in said
    assert "https_proxy=p" in said
    assert "OPENAI_API_KEY" not in said


def test_secrets_in_the_file_of_a_server_are_masked(tmp_path):
    (tmp_path / "server.env").write_text("PLAIN=a\nSHOP_TOKEN=t0p\n")
    servers = [
        McpTool.model_validate(entry(["sh"], name=name, env_file=file))
        for name, file in (("a", "server.env"), ("b", "missing.env"))
    ]

    assert collect(agent_with(tmp_path, *servers), env={}) == ["t0p"]


async def test_a_server_at_a_url_that_was_started_again_gets_a_new_session(opened):
    with servers.serve("http") as url:
        tools = await opened(entry(transport="http", url=url))
    port = int(url.split(":")[2].split("/")[0])
    with servers.serve("http", port):
        lost = await run_tool(tools["lookup_order"], {"order_id": 7})
        found = await run_tool(tools["lookup_order"], {"order_id": 7})

    assert lost.error is not None
    assert found.result == {"order_id": 7, "status": "late"}


async def test_tools_of_the_same_name_are_told_apart_by_a_prefix(opened):
    with pytest.raises(ConfigError, match=r"'hang' is a tool of 'a' and of 'b'.*tool_prefix: b_"):
        await opened(entry(faults.COMMAND, name="a"), entry(faults.COMMAND, name="b"))

    tools = await opened(
        entry(faults.COMMAND, name="a"), entry(faults.COMMAND, name="b", tool_prefix="b_")
    )

    assert (await run_tool(tools["pid"], {})).result != (await run_tool(tools["b_pid"], {})).result


async def test_a_server_of_config_yaml_that_fails_is_a_warning(opened, tmp_path, caplog):
    broken = McpTool.model_validate(entry([*faults.COMMAND, "exits"], name="broken"))
    same = McpTool.model_validate(entry(faults.COMMAND, name="same"))
    agent = agent_with(tmp_path, broken.of_config_in(tmp_path), same.of_config_in(tmp_path))
    box = Toolbox(ToolContext(agent))
    try:
        tools = await box.open()
    finally:
        await box.close()

    assert [tool.name for tool in tools] == [*faults.TOOLS]
    said = caplog.text
    assert "mcp_servers of config.yaml: the MCP server 'broken' failed" in said
    assert "its tools are missing" in said


def agent_with(folder, *shared):
    agent = Agent.model_validate(
        {
            "name": "shop",
            "model": {"provider": "openai", "name": "fake", "endpoint": "http://127.0.0.1:1/v1"},
            "instructions": {"inline": "Help."},
            "tools": [entry(faults.COMMAND)],
        }
    )
    return agent.model_copy(update={"tools": [*agent.tools, *shared]}).with_base_dir(folder)
