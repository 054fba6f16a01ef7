"""Stubs on every way to an agent whose tools holodeck can reach: each kind, delivered and reported.

The agents are those of `support.ways`: asked for `order 7`, each calls `lookup_order` once, and
says what it got.
"""

import json
from dataclasses import dataclass
from functools import partial

import pytest

import holodeck
from fakes import FakeOpenAI
from holodeck.errors import ConfigError
from holodeck.lib.backends.frameworks import adapt
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.models.agent import IN_PYTHON, Agent
from holodeck.models.results.outcome import Outcome
from support.frameworks import TOOL, all_rows, lookup_order, script
from support.ways import built_in, of_framework

REAL = lookup_order("7")


WITHOUT_STUBS = {"tool_loop"}
"""The agents that call their tools themselves, where holodeck cannot take the calls."""
ROWS = {row.__name__: row for row in all_rows()}
WAYS = {backend: partial(built_in, backend) for backend in ("chat", "semantic_kernel")}
WAYS |= {
    name: partial(of_framework, row) for name, row in ROWS.items() if name not in WITHOUT_STUBS
}


@pytest.mark.parametrize("name", ROWS)
def test_each_framework_says_whether_it_takes_stubs(name):
    with FakeOpenAI(script) as server:
        assert adapt(ROWS[name](server).agent).takes_stubs is (name not in WITHOUT_STUBS)


@pytest.fixture(params=WAYS.values(), ids=WAYS)
async def backend(request):
    async with request.param() as backend:
        yield backend
        await backend.teardown()


async def run(backend, *stubs, question="Where is order 7?", **case):
    """The result of a case with these stubs of the tool."""
    given = {} if question is None else {"input": question}
    agent = Agent(
        name="agent",
        backend=IN_PYTHON,
        test_cases=[{**given, **({"stubs": {TOOL: [*stubs]}} if stubs else {}), **case}],
    )
    executor = TestExecutor("agent.yaml", agent_config=agent, backend=backend)
    [result] = (await executor.execute_tests()).results
    return result


@dataclass(frozen=True)
class Row:
    """A stub, and what the agent's model and the report see of it."""

    stub: dict
    told: str
    tool_ran: bool = False
    fails: bool = False


KINDS = {
    "returns": Row({"returns": "order 7 is lost"}, "order 7 is lost"),
    "raises": Row({"raises": "no connection"}, "no connection", fails=True),
    "raises an exception": Row({"raises": "PermissionError: no access"}, "no access", fails=True),
    "raises what no message makes": Row(
        {"raises": "UnicodeDecodeError: not text"}, "UnicodeDecodeError: not text", fails=True
    ),
    "raises timeout": Row({"raises": "timeout"}, "timeout", fails=True),
    "timeout": Row({"timeout": 0.01}, "0.01 s", fails=True),
    "delay": Row({"delay": 0.01}, REAL, tool_ran=True),
    "empty": Row({"empty": True, "returns": "order"}, ""),
    "malformed": Row({"malformed": True}, '{"result": "order 7 is shipped"', tool_ran=True),
    "truncated": Row({"truncated": 7}, "order 7", tool_ran=True),
    "truncated data": Row({"truncated": 6, "returns": {"a": [1, 2]}}, '{"a": '),
    "delayed data": Row({"delay": 0.01, "returns": {"a": 1}}, '"a"'),
}


@pytest.mark.parametrize("row", KINDS.values(), ids=KINDS)
async def test_each_kind_is_delivered_and_reported(backend, row):
    result = await run(backend, row.stub)

    [call] = result.tool_invocations
    [kind] = [kind for kind in row.stub if kind != "returns"] or ["returns"]
    assert (call.stub.kind, call.stub.tool_ran) == (kind, row.tool_ran)
    told = call.error if row.fails else call.result
    assert row.told in (told if isinstance(told, str) else json.dumps(told))
    assert (call.error is not None) == row.fails
    if not row.fails:
        assert row.told.removeprefix("{") in result.agent_response.replace("'", '"')
    assert not [check for check in result.tool_checks if check.expectation.startswith("stub")]


UNDELIVERED = {
    "never called": ({"raises": "x"}, "hello", "never"),
    "call not reached": ({"call": 2, "raises": "x"}, None, "called once; the fault 'raises' at"),
    "other arguments": ({"when": {"order_id": "8"}, "returns": 1}, None, "needs {'order_id': '8'}"),
    "truncates short text": ({"truncated": 300}, None, f"changes nothing of '{REAL}'"),
}


@pytest.mark.parametrize(("stub", "question", "reason"), UNDELIVERED.values(), ids=UNDELIVERED)
async def test_what_is_not_delivered_is_an_error_of_the_case(backend, stub, question, reason):
    passing = {"forbidden_tools": ["erase"]}

    result = await run(backend, stub, question=question or "Where is order 7?", **passing)

    [check] = [check for check in result.tool_checks if check.error]
    assert (check.expectation, result.outcome) == (f"stub {TOOL}[0]", Outcome.METRIC_ERROR)
    assert reason in check.error


async def test_a_call_gets_the_first_stub_that_fits_it(backend):
    stubs = [
        {"when": {"order_id": {"regex": "[89]"}}, "returns": "by arguments"},
        {"call": 2, "returns": "by number"},
        {"returns": "any other"},
    ]
    result = await run(backend, *stubs, question="order 7, order 6, order 8, order 5")

    results = {call.args["order_id"]: call.result for call in result.tool_invocations}
    told = {"7": "any other", "6": "by number", "8": "by arguments", "5": "any other"}
    assert results == told


async def test_calls_are_counted_in_all_turns_and_anew_in_each_repetition(backend):
    stubs = [
        {"call": 1, "returns": "first"},
        {"call": 2, "delay": 0.001},
        {"call": 3, "raises": "no connection"},
    ]
    turns = [{"input": "order 7"}] * 3

    result = await run(backend, *stubs, question=None, turns=turns, repeat=2, stop_early=False)

    for repetition in result.repeats.runs:
        kinds = [call.stub.kind for call in repetition.tool_invocations]
        assert kinds == ["returns", "delay", "raises"]
        assert not [check for check in repetition.tool_checks if check.error]


async def test_sealed_tools_do_not_run_and_a_call_without_a_stub_fails(backend):
    question, stub = "order lost, order 7", {"when": {"order_id": "7"}, "returns": "here"}

    result = await run(backend, stub, question=question, tools_in_test="sealed")

    assert result.outcome is Outcome.FAILED
    [reason] = [check.reason for check in result.tool_checks if check.reason]
    assert reason.endswith(
        f"{TOOL}({{'order_id': 'lost'}}) has no stub that keeps the tool from running"
    )
    errors = {call.args["order_id"]: call.error for call in result.tool_invocations}
    assert errors["7"] is None
    assert "no such order" not in errors["lost"]
    assert "has no stub for the call" in errors["lost"]


@holodeck.stubbed
def find(order_id):
    return lookup_order(order_id)


@holodeck.stubbed
async def find_later(order_id):
    return lookup_order(order_id)


def delete():
    return "gone"


async def ask(question):
    """An agent of Python code that calls its tools itself."""
    calls = []
    for order in question.split():
        said = find(order) if len(order) == 1 else await find_later(order_id=order)
        tool = "find" if len(order) == 1 else "find_later"
        calls.append({"name": tool, "arguments": {"order_id": order}, "result": said})
    if "delete" in question:
        calls.append({"name": "delete", "arguments": {}, "result": delete()})
    return {"response": "done", "tool_calls": calls}


async def test_stubs_take_the_calls_of_marked_functions():
    stubs = {
        "find": [{"when": {"order_id": "7"}, "returns": "here"}],
        "find_later": [{"truncated": 8}],
    }

    result = await run(CallableBackend(ask), question="7 8 99", stubs=stubs)

    calls = [(call.result, call.stub and call.stub.kind) for call in result.tool_invocations]
    assert calls == [("here", "returns"), (lookup_order("8"), None), ("order 99", "truncated")]
    assert find("8") == lookup_order("8")


@pytest.mark.parametrize("key", ["stubs", "tools_in_test"])
async def test_a_function_that_is_not_marked_is_told(key):
    keys = {"stubs": {"delete": [{"raises": "x"}]}, "tools_in_test": "sealed"}

    result = await run(CallableBackend(ask), question="delete", **{key: keys[key]})

    reasons = [check.error or check.reason for check in result.tool_checks]
    assert any("delete was called past the stubs" in reason for reason in reasons)
    assert all("mark its function with holodeck.stubbed" in reason for reason in reasons[-1:])


async def test_sealed_tools_of_an_agent_that_reports_no_calls_are_unknown():
    def silent(question):
        return "done"

    result = await run(CallableBackend(silent), tools_in_test="sealed")

    assert "tool calls are unknown" in result.tool_checks[0].error


@pytest.mark.parametrize("name", sorted(WITHOUT_STUBS & ROWS.keys()))
async def test_tools_are_not_sealed_where_a_framework_has_no_place_for_stubs(name):
    async with of_framework(ROWS[name]) as backend:
        with pytest.raises(ConfigError, match="has no place where holodeck could keep a tool from"):
            await run(backend, tools_in_test="sealed")
        await backend.teardown()


async def test_tools_of_an_agent_with_middleware_in_a_workflow_are_not_sealed():
    from agent_framework import Agent, function_middleware
    from agent_framework_openai import OpenAIChatCompletionClient
    from agent_framework_orchestrations import SequentialBuilder

    @function_middleware
    async def watch(context, call_next):
        await call_next()

    client = OpenAIChatCompletionClient(model="fake", api_key="none")
    agent = Agent(client, name="agent", tools=[lookup_order], middleware=[watch])
    backend = CallableBackend(SequentialBuilder(participants=[agent]))

    with pytest.raises(ConfigError, match="has no place where holodeck could keep a tool from"):
        await run(backend, tools_in_test="sealed")


@pytest.mark.parametrize("prompt", ["leave the arguments out", "write malformed arguments"])
async def test_no_stub_takes_a_call_that_the_tool_refuses(backend, prompt):
    """The case would pass on calls with which no tool does anything."""
    result = await run(backend, {"returns": "lost", "optional": True}, question=prompt)

    assert result.outcome in {Outcome.FAILED, Outcome.AGENT_ERROR}, result.reasons()
    assert "lost" not in str(result.agent_response)


@pytest.mark.parametrize("way", ["chat", "semantic_kernel"])
@pytest.mark.parametrize("tools", ["live", "sealed"])
async def test_a_built_in_agent_gets_what_the_function_says_of_the_arguments(way, tools):
    replies = [
        {"tool_calls": [{TOOL: {"order_id": "7", "urgent": True}}]},
        {"tool_calls": [{TOOL: {"order_id": "7"}}]},
        {"text": "It is lost."},
    ]
    async with WAYS[way]() as backend:
        result = await run(
            backend,
            {"call": 2, "returns": "order 7 is lost"},
            model_replies=replies,
            tools_in_test=tools,
            expected_tools=[TOOL],
        )
        await backend.teardown()

    assert result.outcome is Outcome.FAILED
    [reason] = result.reasons()
    assert "urgent is not an argument; it takes order_id" in reason
    refused, stubbed = result.tool_invocations
    assert refused.stub is None
    assert refused.error in reason
    assert (stubbed.stub.kind, stubbed.error) == ("returns", None)
