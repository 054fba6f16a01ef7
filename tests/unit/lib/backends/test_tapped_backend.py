"""Python code behind the tap: whose requests they are, and when that is unknown."""

import asyncio
import os
import threading

import openai
import pytest

from fakes import ToolCall
from holodeck.errors import BackendInitError, BackendSessionError, BackendTimeoutError
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.backends.tapped_backend import (
    ONE_PER_PROCESS,
    UNUSED_VARIABLE,
    TappedPythonBackend,
)
from holodeck.lib.llm.limits import override_call_limit
from holodeck.lib.processes import threads
from holodeck.lib.processes.threads import is_user_code_running
from holodeck.lib.tap.channel import EARLIER_WORK

ASKED = {"model": "gpt-x", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture(autouse=True)
def model(fake_openai, monkeypatch):
    """The model of the agents, which asks for one tool."""
    monkeypatch.setenv("OPENAI_BASE_URL", fake_openai.url)
    fake_openai.otherwise("Done.", tool_calls=[ToolCall("look", {"id": 1})])
    return fake_openai


@pytest.fixture(autouse=True)
def _no_other_work(monkeypatch):
    """Forget the functions of other tests that still hang in threads of this process."""
    monkeypatch.setattr(threads, "_user_calls", set())


@pytest.fixture
async def tap():
    """Makes tapped backends, and tears them down."""
    made = []

    async def make(agent):
        backend = TappedPythonBackend(CallableBackend(agent))
        made.append(backend)
        await backend.initialize()
        return backend

    yield make
    for backend in made:
        await backend.teardown()


def ask_model():
    with openai.OpenAI(api_key="key", max_retries=0) as client:
        return client.chat.completions.create(**ASKED).choices[0].message.content


def asking(message):
    return ask_model()


async def test_a_function_that_blocks_is_seen(tap):
    backend = await tap(asking)

    result = await backend.invoke_once("Hello")

    assert (result.response, result.tool_calls_problem) == ("Done.", None)
    assert [call["name"] for call in result.tool_calls] == ["look"]
    assert result.tapped == {"tool_calls", "token_usage"}


async def test_a_coroutine_that_blocks_the_event_loop_does_not_block_its_tap(tap):
    async def agent(message):
        return ask_model()

    backend = await tap(agent)

    assert (await backend.invoke_once("Hello")).tool_calls_problem is None


async def test_a_client_that_is_made_with_the_agent_is_seen_in_every_turn(tap):
    class Agent:
        def __init__(self):
            self.client = openai.AsyncOpenAI(api_key="key")

        async def run(self, message):
            asked = await self.client.chat.completions.create(**ASKED)
            return asked.choices[0].message.content

        async def aclose(self):
            await self.client.close()

    backend = await tap(Agent)
    session = await backend.create_session()
    results = [await session.send("Hello") for _ in range(2)]
    await session.close()

    assert [result.tool_calls_problem for result in results] == [None, None]
    assert [len(result.tool_calls) for result in results] == [1, 1]


async def test_the_variables_are_set_only_for_the_agent(tap, model):
    seen = []

    def agent(message):
        seen.append(os.environ["OPENAI_BASE_URL"])
        return "nothing"

    backend = await tap(agent)
    result = await backend.invoke_once("Hello")

    assert seen[0] != os.environ["OPENAI_BASE_URL"] == model.url
    assert result.tool_calls_problem == UNUSED_VARIABLE
    assert result.tool_calls is None


async def test_calls_that_the_agent_leaves_out_of_its_report_count(tap):
    def agent(message):
        ask_model()
        return {"response": "Done.", "tool_calls": []}

    backend = await tap(agent)
    result = await backend.invoke_once("Hello")

    assert [call["name"] for call in result.tool_calls] == ["look"]
    assert result.tapped == {"tool_calls", "token_usage"}


async def test_a_call_that_the_agent_reports_and_the_tap_saw_counts_once(tap):
    def agent(message):
        ask_model()
        call = {"name": "look", "arguments": {"id": 1}, "result": "here", "agent": "desk"}
        return {"response": "Done.", "tool_calls": [call]}

    backend = await tap(agent)
    result = await backend.invoke_once("Hello")

    [call] = result.tool_calls
    assert (call["name"], call["agent"]) == ("look", "desk")
    assert [returned["result"] for returned in result.tool_results] == ["here"]
    assert result.tapped == {"token_usage"}


@pytest.mark.parametrize(
    ("reported", "known"),
    [((1, 1), (10, 5)), ((10, 5), (10, 5)), ((99, 50), (99, 50)), ((99, 1), None)],
    ids=["fewer", "the same", "more", "a contradiction"],
)
async def test_the_larger_token_usage_of_agent_and_tap_counts(tap, reported, known):
    def agent(message):
        ask_model()
        prompt, completion = reported
        usage = {"prompt_tokens": prompt, "completion_tokens": completion}
        return {"response": "Done.", "usage": usage}

    backend = await tap(agent)
    usage = (await backend.invoke_once("Hello")).token_usage

    assert (usage and (usage.prompt_tokens, usage.completion_tokens)) == known


async def test_calls_before_an_error_are_seen(tap):
    def agent(message):
        ask_model()
        raise ValueError("no")

    backend = await tap(agent)
    with pytest.raises(BackendSessionError) as raised:
        await backend.invoke_once("Hello")

    assert [call["name"] for call in raised.value.seen.tool_calls] == ["look"]


async def test_a_function_that_exceeded_its_limit_makes_turns_unknown_until_it_ends(tap):
    go_on, ended = threading.Event(), threading.Event()

    def agent(message):
        if message == "hang":
            go_on.wait()
            ask_model()
            ended.set()
            return "late"
        return ask_model()

    backend = await tap(agent)
    with pytest.raises(BackendTimeoutError), override_call_limit(0.1):
        await backend.invoke_once("hang")
    meanwhile = await backend.invoke_once("Hello")
    go_on.set()
    await asyncio.to_thread(ended.wait)
    while is_user_code_running():  # noqa: ASYNC110 - the end of a thread is no event
        await asyncio.sleep(0)
    after = await backend.invoke_once("Hello")

    assert (meanwhile.tool_calls_problem, meanwhile.model_requests) == (EARLIER_WORK, [])
    assert (after.tool_calls_problem, len(after.model_requests)) == (None, 1)


async def test_a_task_that_the_agent_left_makes_later_turns_unknown_until_it_ends(tap):
    go_on, left = asyncio.Event(), []

    async def agent(message):
        if message == "leave":
            left.append(asyncio.create_task(go_on.wait()))
        async with openai.AsyncOpenAI(api_key="key") as client:
            return (await client.chat.completions.create(**ASKED)).choices[0].message.content

    backend = await tap(agent)
    results = [await backend.invoke_once("leave"), await backend.invoke_once("Hello")]
    go_on.set()
    await left[0]
    results.append(await backend.invoke_once("Hello"))

    assert [one.tool_calls_problem for one in results] == [None, EARLIER_WORK, None]


async def test_two_agents_of_one_process_cannot_be_tapped_at_the_same_time(tap):
    first = await tap(asking)
    with pytest.raises(BackendInitError) as raised:
        await tap(asking)
    await first.teardown()
    second = await tap(asking)

    assert str(raised.value) == ONE_PER_PROCESS
    assert (await second.invoke_once("Hello")).tool_calls_problem is None
