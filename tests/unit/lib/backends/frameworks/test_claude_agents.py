"""Options of the Claude Agent SDK: `scripts/frameworks claude-agent-sdk` runs these tests."""

import asyncio
import os
import signal
import sys
from dataclasses import replace

import pytest

from fakes import FakeOpenAI, Reply
from holodeck import arun
from holodeck.errors import BackendError, BackendTimeoutError
from holodeck.lib.backends.frameworks import adapt
from holodeck.lib.backends.frameworks.base import FrameworkError, TurnRecord
from holodeck.lib.backends.frameworks.claude.messages import ClaudeTurnReader
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.llm.limits import override_call_limit
from support.frameworks import script
from support.frameworks.claude_agents import environment, options_for
from support.processes import command_of, descendants, until, until_gone

sdk = pytest.importorskip("claude_agent_sdk", reason="scripts/frameworks claude-agent-sdk")

TOOL = "mcp__orders__lookup_order"
BILLING = sdk.AgentDefinition(description="Does the bills.", prompt="You do billing.")


@pytest.fixture
def server():
    with FakeOpenAI(script) as running:
        yield running


async def ask(agent, *messages, context=None):
    """Return what the agent answered in a conversation."""
    backend = CallableBackend(agent)
    await backend.initialize()
    session = await backend.create_session(context)
    try:
        return [await session.send(message) for message in messages]
    finally:
        await session.close()
        await backend.teardown()


def delegating(how):
    """The main agent asks the billing agent, which looks an order up."""

    def model(request):
        if "You do billing." in request.system:
            found = request.tool_results
            return Reply(f"billing: {found[-1]}" if found else None, [] if found else [LOOKUP])
        if request.tool_results:
            return Reply("done")
        arguments = {"description": "bill", "prompt": "Bill order 7.", "subagent_type": "billing"}
        return Reply(tool_calls=[("Agent", {**arguments, "run_in_background": how})])

    return model


LOOKUP = (TOOL, {"order_id": "7"})


async def test_a_case_that_names_the_tool_without_its_server_passes(server):
    cases = [
        {
            "input": "Where is order 7?",
            "expected_tools": [{"name": "lookup_order", "args": {"order_id": "7"}}],
        },
        {"input": "hello", "forbidden_tools": ["lookup_order"]},
    ]

    report = await arun(options_for(server), cases)

    assert report.passed, report.to_markdown()
    assert [result.token_usage.prompt_tokens for result in report.results] == [20, 10]


async def test_a_client_that_is_not_connected_is_as_good_as_its_options(server):
    [result] = await ask(sdk.ClaudeSDKClient(options_for(server)), "hello")

    assert result.response == "OK: hello"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"continue_conversation": True}, "'continue_conversation' would let test cases share"),
        ({"session_id": "0b0c9e4e-7b1c-4a8e-8f0e-1a2b3c4d5e6f"}, "'session_id' would let"),
    ],
)
def test_options_with_which_cases_share_a_conversation_are_refused(fields, problem):
    with pytest.raises(FrameworkError, match=problem):
        adapt(sdk.ClaudeAgentOptions(**fields))


async def test_a_connected_client_is_refused(server):
    async with sdk.ClaudeSDKClient(options_for(server)) as client:
        with pytest.raises(FrameworkError, match="the ClaudeSDKClient is connected"):
            adapt(client)


@pytest.mark.parametrize("in_background", [False, True], ids=["waits", "in the background"])
async def test_the_calls_of_a_subagent_are_read_with_its_name(in_background):
    with FakeOpenAI(delegating(in_background)) as server:
        agent = options_for(
            server,
            tools=["Agent"],
            agents={"billing": BILLING},
            allowed_tools=["Agent", "mcp__orders"],
        )
        [result] = await ask(agent, "Bill order 7.")
        requests = len(server.requests)

    calls = [(call["name"], call["agent"]) for call in result.tool_calls]
    assert calls == [("Agent", "main"), (TOOL, "billing")]
    assert result.tool_calls_problem is None
    assert {"main", "billing"} == set(result.agents)
    assert (result.response, result.token_usage.prompt_tokens) == ("done", 10 * requests)


@pytest.mark.parametrize(("used", "is_known"), [(1, True), (2, False), (None, False)])
def test_calls_of_a_subagent_that_were_not_seen_are_unknown(used, is_known):
    turn = TurnRecord()
    reader = ClaudeTurnReader(turn, None, set())
    task = {"task_id": "t", "uuid": "u", "session_id": "s", "tool_use_id": "call_1"}
    started = {"subtype": "task_started", "data": {"subagent_type": "billing"}}
    call = sdk.ToolUseBlock("call_1", "Agent", {"subagent_type": "billing"})
    inner = sdk.ToolUseBlock("call_2", "lookup_order", {})

    reader.read(sdk.AssistantMessage([call], "fake"))
    reader.read(
        sdk.TaskStartedMessage(**started, **task, description="bill", task_type="local_agent")
    )
    reader.read(sdk.AssistantMessage([inner], "fake", parent_tool_use_id="call_1"))
    if used is not None:
        usage = {"total_tokens": 1, "tool_uses": used, "duration_ms": 1}
        ended = {"status": "completed", "output_file": "", "summary": "", "usage": usage}
        reader.read(
            sdk.TaskNotificationMessage(subtype="task_notification", data={}, **task, **ended)
        )
    reader.finish()

    assert (turn.tool_calls_problem is None) is is_known
    if not is_known:
        assert "those of 'billing' are not seen" in turn.tool_calls_problem


def test_calls_of_a_subagent_that_nobody_announced_may_be_some_of_several():
    turn = TurnRecord()
    reader = ClaudeTurnReader(turn, None, set())
    inner = sdk.ToolUseBlock("call_2", "lookup_order", {})

    reader.read(sdk.AssistantMessage([sdk.ToolUseBlock("call_1", "Skill", {})], "fake"))
    reader.read(sdk.AssistantMessage([inner], "fake", parent_tool_use_id="call_1"))
    reader.finish()

    assert [call["name"] for call in turn.tool_calls] == ["Skill", "lookup_order"]
    assert "are not seen" in turn.tool_calls_problem


@pytest.mark.parametrize(
    ("data", "task_type", "name"),
    [
        ({"subagent_type": "billing"}, "remote_agent", "billing"),
        ({}, "remote_agent", "remote_agent"),
        ({}, None, "a task"),
    ],
)
def test_a_task_without_a_seen_call_is_named_by_what_is_known_of_it(data, task_type, name):
    turn = TurnRecord()
    reader = ClaudeTurnReader(turn, None, set())
    task = {"task_id": "t", "uuid": "u", "session_id": "s", "description": "bill"}

    reader.read(sdk.TaskStartedMessage("task_started", data, **task, task_type=task_type))
    reader.finish()

    assert f"those of {name!r} are not seen" in turn.tool_calls_problem


def test_only_servers_without_tools_are_reported_and_once(caplog):
    servers = [
        {"name": "orders", "status": "connected"},
        {"name": "mail", "status": "failed"},
    ]
    reader = ClaudeTurnReader(TurnRecord(), None, set())

    for _ in range(2):
        reader.read(sdk.SystemMessage("init", {"mcp_servers": servers}))

    [message] = [record.message for record in caplog.records]
    assert message == "the agent has no tools of its MCP server 'mail': failed"


FIRST = {"inputTokens": 10, "outputTokens": 2}
CACHED = {"inputTokens": 30, "cacheReadInputTokens": 4, "outputTokens": None}


@pytest.mark.parametrize(
    ("earlier", "models", "usage", "expected"),
    [
        (None, None, {"input_tokens": 7, "cache_read_input_tokens": 2, "output_tokens": 3}, (9, 3)),
        (None, None, {"input_tokens": 0, "output_tokens": 3}, None),
        (None, None, None, None),
        ((10, 2), {"a": FIRST, "b": CACHED}, {"input_tokens": 30}, (34, 0)),
    ],
    ids=["of the result", "no prompt", "nothing", "of all models since the turn before"],
)
def test_the_tokens_of_a_turn_are_those_that_are_known(earlier, models, usage, expected):
    turn = TurnRecord()
    reader = ClaudeTurnReader(turn, earlier, set())
    numbers = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1}

    reader.read(
        sdk.ResultMessage(
            "success", is_error=False, session_id="s", usage=usage, model_usage=models, **numbers
        )
    )
    now = reader.finish()

    tokens = turn.usage and (turn.usage["prompt_tokens"], turn.usage["completion_tokens"])
    assert tokens == expected
    assert now == (None if models is None else (44, 2))


async def test_a_tool_that_nobody_allowed_is_an_error_of_the_tool(server):
    [result] = await ask(options_for(server, allowed_tools=[]), "Where is order 7?")

    [refusal] = result.tool_results
    assert refusal["is_error"] is True
    assert "permission" in refusal["result"]


async def test_a_structured_answer_is_the_response_and_no_tool_call():
    shape = {
        "type": "object",
        "properties": {"shipped": {"type": "boolean"}},
        "required": ["shipped"],
    }
    with FakeOpenAI() as server:
        server.otherwise(tool_calls=[("StructuredOutput", {"shipped": True})])
        agent = options_for(server, output_format={"type": "json_schema", "schema": shape})
        [result] = await ask(agent, "Is order 7 shipped?")

    assert (result.structured_output, result.tool_calls) == ({"shipped": True}, [])


async def test_max_turns_end_a_turn_with_an_error_that_says_so():
    with FakeOpenAI() as server:
        server.otherwise(tool_calls=[LOOKUP])
        with pytest.raises(BackendError, match=r"max_turns|maximum number of turns") as raised:
            await ask(options_for(server, max_turns=2), "Where is order 7?")

    assert {call["name"] for call in raised.value.seen.tool_calls} == {TOOL}


async def test_resume_begins_each_case_with_a_copy_of_that_conversation(server):
    options = options_for(server)
    async with sdk.ClaudeSDKClient(options) as client:
        await client.query("my name is Ada")
        async for message in client.receive_response():
            last = message

    resumed = replace(options, resume=last.session_id)
    [first] = await ask(resumed, "who am I")
    [second] = await ask(resumed, "who are you")

    for request, other in zip(server.requests[-2:], ("who are you", "who am I"), strict=True):
        assert "my name is Ada" in str(request.messages)
        assert other not in str(request.messages)
    assert (first.response, second.response) == ("OK: who am I", "OK: who are you")


async def test_a_history_with_a_tool_call_reaches_the_model(server):
    function = {"name": TOOL, "arguments": '{"order_id": "5"}'}
    context = [
        {"role": "user", "content": "Where is order 5?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_5", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "order 5 is lost", "tool_call_id": "call_5"},
        {"role": "assistant", "content": "It is lost."},
    ]

    await ask(options_for(server), "hello", context=context)

    [request] = server.requests
    roles = [one["role"] for one in request.messages]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert request.tool_results == ["order 5 is lost"]


async def test_a_message_of_the_system_in_the_history_is_refused(server):
    with pytest.raises(BackendError, match="write it as 'system_prompt'"):
        await ask(options_for(server), "hello", context=[{"role": "system", "content": "x"}])


async def test_a_program_that_does_not_start_is_named(server):
    agent = options_for(server, cli_path="/nowhere/claude")

    with pytest.raises(BackendError, match=r"Claude Code failed: .* /nowhere/claude"):
        await ask(agent, "hello")


async def test_an_error_of_claude_code_comes_with_its_stderr(server):
    lines = []
    agent = options_for(server, extra_args={"no-such-flag": None}, stderr=lines.append)

    with pytest.raises(BackendError, match=r"exit code 1; the last lines of its stderr:\s+error"):
        await ask(agent, "hello")

    assert "no-such-flag" in "".join(lines)


def test_tools_are_unknown_where_settings_may_add_some(server):
    assert adapt(options_for(server)).tools() == [TOOL]
    assert adapt(options_for(server, tools=["Read"])).tools() == ["Read", TOOL]
    assert adapt(options_for(server, tools=None)).tools() is None
    assert adapt(options_for(server, setting_sources=None)).tools() is None
    assert adapt(options_for(server, mcp_servers={"x": {"command": "x"}})).tools() is None


async def test_a_server_whose_tools_the_agent_lacks_is_reported(server, caplog):
    servers = {"broken": {"command": sys.executable, "args": ["-c", "raise SystemExit(1)"]}}

    await ask(options_for(server, mcp_servers=servers), "hello", "thanks")

    assert caplog.text.count("no tools of its MCP server 'broken': failed") == 1


async def test_a_turn_out_of_time_leaves_no_process(server):
    backend = CallableBackend(options_for(server))
    await backend.initialize()
    session = await backend.create_session()
    await session.send("hello")
    before = [pid for pid in descendants(os.getpid()) if is_claude(pid)]

    with override_call_limit(0.1), pytest.raises(BackendTimeoutError):
        await session.send("hang")

    assert len(before) == 1
    await until_gone(*before)
    await session.close()
    await backend.teardown()
    assert not [pid for pid in descendants(os.getpid()) if is_claude(pid)]


def is_claude(pid):
    return b"stream-json" in command_of(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_outlives_a_process_that_is_killed(server, tmp_path, number):
    program = tmp_path / "agent.py"
    program.write_text(f"""
import asyncio
from types import SimpleNamespace
from holodeck.lib.backends.frameworks import adapt
from support.frameworks.claude_agents import options_for

async def main():
    options = options_for(SimpleNamespace(root={server.root!r}), env={environment(server)!r})
    await (await adapt(options).open([])).send("hang")

asyncio.run(main())
""")
    paths = os.pathsep.join(path for path in sys.path if path)
    variables = {**os.environ, "PYTHONPATH": paths}
    process = await asyncio.create_subprocess_exec(sys.executable, program, env=variables)
    await server.saw(1)
    started = descendants(process.pid)
    assert any(map(is_claude, started))

    process.send_signal(number)
    await process.wait()

    await until_gone(*started)


async def test_what_claude_code_started_ends_with_the_conversation(server, tmp_path):
    mark = tmp_path / "pid"
    code = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    servers = {"slow": {"command": sys.executable, "args": ["-c", code]}}
    backend = CallableBackend(options_for(server, mcp_servers=servers))
    await backend.initialize()
    session = await backend.create_session()
    turn = asyncio.create_task(session.send("hello"))
    await until(lambda: mark.exists() and mark.read_text() != "")

    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)

    await until_gone(int(mark.read_text()))
    await session.close()
    await backend.teardown()


async def test_an_agent_that_a_tool_runs_is_seen():
    import semantic_kernel  # noqa: F401 - before the turn
    from openai import AsyncOpenAI

    from support.nested_agents import ask_semantic_kernel, model

    with FakeOpenAI(model) as server:

        @sdk.tool("ask_desk", "Ask the desk.", {"question": str})
        async def ask_desk(arguments):
            async with AsyncOpenAI(base_url=server.url, api_key="not-a-real-key") as client:
                text = await ask_semantic_kernel(client)(arguments["question"])
            return {"content": [{"type": "text", "text": text}]}

        desk = sdk.create_sdk_mcp_server("orders", tools=[ask_desk])
        agent = options_for(server, mcp_servers={"orders": desk})
        [result] = await ask(agent, "hi")

    names = [call["name"] for call in result.tool_calls]
    assert names == ["mcp__orders__ask_desk", "desk-delete_order"]
    assert result.tool_calls_problem is not None  # it may have requested others
    assert result.token_usage.prompt_tokens == 40
