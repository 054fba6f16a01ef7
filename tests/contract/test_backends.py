"""What every way to reach an agent keeps to, whatever stands behind it.

Each agent here answers `OK: <message>`, fails at "fail", and never answers "hang".
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from fakes import FakeOpenAI, Reply, ScriptedBackend
from holodeck.errors import BackendError, BackendSessionError, BackendTimeoutError
from holodeck.lib.backends.base import (
    AcceptsHistory,
    AgentBackend,
    AgentSession,
    ExecutionResult,
    capabilities_of,
)
from holodeck.lib.backends.http_backend import HttpBackend
from holodeck.lib.backends.process.backend import ProcessBackend
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.models.agent import Agent
from holodeck.models.backend import HttpBackendConfig, ProcessBackendConfig
from holodeck.models.config import ExecutionConfig

STREAM = {"Content-Type": "text/event-stream"}
QUICK = ExecutionConfig(llm_timeout=0.3, max_retries=0)
PATIENT = ExecutionConfig(llm_timeout=600, max_retries=0)


@dataclass
class Reached:
    """A backend, and what its agent was told."""

    backend: AgentBackend
    heard: Callable[[], list[list[str]]]
    """Per call, everything the user had said in that conversation."""
    told: Callable[[], list[list[dict[str, Any]]]] = list
    """Per call, every message that a model was sent."""

    async def is_asked(self) -> None:
        """Return once the agent was asked something."""
        async with asyncio.timeout(60):
            while not self.heard():  # noqa: ASYNC110 - the agent may live in another thread
                await asyncio.sleep(0.005)


def said(message, context):
    return [m["content"] for m in context if m["role"] == "user"] + [message]


@contextmanager
def function(execution) -> Iterator[Reached]:
    heard, left = [], threading.Event()

    def agent(message, context):
        heard.append(said(message, context))
        if message == "fail":
            raise ValueError("as told")
        if message == "hang":
            left.wait(60)
        return f"OK: {message}"

    yield Reached(CallableBackend(agent, execution=execution), lambda: heard)
    left.set()


@contextmanager
def coroutine(execution) -> Iterator[Reached]:
    heard = []

    async def agent(message, context):
        heard.append(said(message, context))
        if message == "fail":
            raise ValueError("as told")
        await asyncio.sleep(60 if message == "hang" else 0)
        return {"response": f"OK: {message}"}

    yield Reached(CallableBackend(agent, execution=execution), lambda: heard)


@contextmanager
def klass(execution) -> Iterator[Reached]:
    heard = []

    class Agent:
        def __init__(self):
            self.said = []

        async def run(self, message):
            self.said.append(message)
            heard.append(list(self.said))
            if message == "fail":
                raise ValueError("as told")
            await asyncio.sleep(60 if message == "hang" else 0)
            return ExecutionResult(response=f"OK: {message}")

    yield Reached(CallableBackend(Agent, execution=execution), lambda: heard)


@contextmanager
def scripted(execution) -> Iterator[Reached]:
    backend = ScriptedBackend(_script)
    yield Reached(backend, lambda: [said(call.message, call.context) for call in backend.calls])


@contextmanager
def protocol(execution) -> Iterator[Reached]:
    backend = ScriptedBackend(_script)
    yield Reached(
        CallableBackend(lambda: backend, execution=execution),
        lambda: [said(call.message, call.context) for call in backend.calls],
    )


async def _script(message):
    if message == "fail":
        return BackendSessionError("as told")
    await asyncio.sleep(60 if message == "hang" else 0)
    return f"OK: {message}"


@contextmanager
def http(execution) -> Iterator[Reached]:
    def answer(request):
        message = request.body["messages"][-1]["content"]
        return Reply(json={"response": f"OK: {message}"})

    with FakeOpenAI(answer) as server:
        server.when(lambda request: said_last(request) == "fail", status=400, content="as told")
        server.when(lambda request: said_last(request) == "hang", fault="hang")
        config = HttpBackendConfig(
            type="http", url=f"{server.root}/agent", request={"messages": "{messages}"}
        )
        yield Reached(HttpBackend(config, execution), lambda: heard_by(server))


@contextmanager
def http_sessions(execution) -> Iterator[Reached]:
    """A service whose conversations begin, go on and end with requests of their own."""
    ids, conversations = count(1), dict[str, list[str]]()

    def answer(request):
        [_, session, *_] = [*request.path.strip("/").split("/"), ""]
        if request.method == "DELETE":
            return Reply(json={"ended": conversations.pop(session)})
        if not session:
            session = f"s{next(ids)}"
            earlier = [m["content"] for m in request.body["earlier"] if m["role"] == "user"]
            conversations[session] = earlier
            return Reply(json={"id": session})
        conversations[session].append(request.body["input"])
        heard.append([*conversations[session]])
        return Reply(f'data: {{"response": "OK: {request.body["input"]}"}}\n\n', headers=STREAM)

    heard: list[list[str]] = []
    with FakeOpenAI(answer) as server:
        server.when(lambda request: is_asked(request, "fail"), status=400, content="as told")
        server.when(lambda request: is_asked(request, "hang"), fault="hang")
        url = f"{server.root}/sessions"
        create = {"url": url, "id": "id", "request": {"earlier": "{messages}"}}
        close = {"url": f"{url}/{{session_id}}"}
        config = HttpBackendConfig.model_validate(
            {
                "type": "http",
                "url": f"{url}/{{session_id}}/messages",
                "session": {"create": create, "close": close},
            }
        )
        yield Reached(HttpBackend(config, execution), lambda: heard or hanging(server))
        assert conversations == {}


def is_asked(request, message):
    return isinstance(request.body, dict) and request.body.get("input") == message


def hanging(server):
    return [[request.body["input"]] for request in server.requests if is_asked(request, "hang")]


PROCESS_AGENT = """
import asyncio
import json
import time


def said(message, context):
    heard = [one["content"] for one in context if one["role"] == "user"] + [message]
    with open("heard.jsonl", "a") as file:
        print(json.dumps(heard), file=file)
    if message == "fail":
        raise ValueError("as told")


def answer(message, context):
    said(message, context)
    time.sleep(60 if message == "hang" else 0)
    return f"OK: {message}"


async def answer_async(message, context):
    said(message, context)
    await asyncio.sleep(60 if message == "hang" else 0)
    return f"OK: {message}"
"""


@contextmanager
def process(execution) -> Iterator[Reached]:
    """A function that is not async, so that a call that hangs costs its process."""
    with process_of("answer", execution, workers=2) as reached:
        yield reached


@contextmanager
def async_process(execution) -> Iterator[Reached]:
    with process_of("answer_async", execution) as reached:
        yield reached


@contextmanager
def process_of(function, execution, **config) -> Iterator[Reached]:
    with TemporaryDirectory() as folder:
        Path(folder, "bot.py").write_text(PROCESS_AGENT)
        heard = Path(folder, "heard.jsonl")
        heard.touch()
        config = ProcessBackendConfig(type="process", target=f"bot:{function}", **config)
        backend = ProcessBackend(config, Path(folder), execution)
        yield Reached(backend, lambda: [json.loads(one) for one in heard.read_text().splitlines()])


@contextmanager
def semantic_kernel(execution) -> Iterator[Reached]:
    from holodeck.lib.test_runner.agent_factory import AgentFactory

    with FakeOpenAI(lambda request: f"OK: {request.prompt}") as server:
        server.when(lambda request: request.prompt == "fail", status=400, content="as told")
        server.when(lambda request: request.prompt == "hang", fault="hang")
        model = {"provider": "openai", "name": "fake", "endpoint": server.url, "api_key": "none"}
        agent = Agent(name="a", model=model, instructions={"inline": "Be brief."})
        backend = AgentFactory(agent, execution_config=execution)
        yield Reached(backend, lambda: heard_by(server), lambda: told_to(server))


@contextmanager
def chat(execution) -> Iterator[Reached]:
    from holodeck.lib.backends.chat_backend import ChatBackend
    from holodeck.models.llm import LLMProvider

    with FakeOpenAI(lambda request: f"OK: {request.prompt}") as server:
        server.when(lambda request: request.prompt == "fail", status=400, content="as told")
        server.when(lambda request: request.prompt == "hang", fault="hang")
        model = LLMProvider(provider="openai", name="fake", endpoint=server.url)
        backend = ChatBackend(model, "Be brief.", execution=execution)
        yield Reached(backend, lambda: heard_by(server), lambda: told_to(server))


def said_last(request):
    return request.body["messages"][-1]["content"]


def heard_by(server):
    return [
        [m["content"] for m in request.messages if m["role"] == "user"]
        for request in server.requests
    ]


def told_to(server):
    return [request.messages for request in server.requests]


WAYS = [
    *(
        function,
        coroutine,
        klass,
        protocol,
        http,
        http_sessions,
        chat,
        process,
        async_process,
        semantic_kernel,
    ),
    scripted,
]
WITH_TIME_LIMIT = WAYS[:-1]
"""The scripted agent of the tests takes no settings."""


@pytest.fixture
async def reached(request):
    with request.param(PATIENT) as one:
        await one.backend.initialize()
        yield one
        await one.backend.teardown()


@pytest.fixture
async def hurried(request):
    with request.param(QUICK) as one:
        await one.backend.initialize()
        yield one
        await one.backend.teardown()


every_way = pytest.mark.parametrize("reached", WAYS, indirect=True, ids=lambda way: way.__name__)
every_way_with_time_limit = pytest.mark.parametrize(
    "hurried", WITH_TIME_LIMIT, indirect=True, ids=lambda way: way.__name__
)


@every_way
async def test_it_keeps_the_protocol(reached):
    session = await reached.backend.create_session()

    assert isinstance(reached.backend, AgentBackend)
    assert isinstance(session, AgentSession)
    await session.close()


@every_way
async def test_it_answers(reached):
    result = await reached.backend.invoke_once("hello")

    assert isinstance(result, ExecutionResult)
    assert (result.response, result.is_error, result.attempts) == ("OK: hello", False, [])


every_way_with_context = pytest.mark.parametrize(
    "reached", [way for way in WAYS if way is not klass], indirect=True, ids=lambda w: w.__name__
)
CONTEXT = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "OK: one"}]


@every_way_with_context
async def test_the_context_reaches_the_agent(reached):
    await reached.backend.invoke_once("two", CONTEXT)

    assert reached.heard() == [["one", "two"]]


@every_way_with_context
async def test_a_session_that_begins_in_the_middle_remembers_what_was_said_before(reached):
    session = await reached.backend.create_session(CONTEXT)

    for message in ("two", "three"):
        await session.send(message)

    assert reached.heard() == [["one", "two"], ["one", "two", "three"]]
    assert capabilities_of(reached.backend).history_problems == {}
    await session.close()


@pytest.mark.parametrize("reached", [chat, semantic_kernel], indirect=True, ids=["chat", "sk"])
async def test_earlier_tool_calls_and_their_results_reach_the_model(reached):
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"n": 9}'}}
    context = [
        CONTEXT[0],
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "shipped"},
        CONTEXT[1],
    ]

    await reached.backend.invoke_once("two", context)

    [system, one, calls, result, answer, two] = reached.told()[0]
    assert (one["content"], answer["content"], two["content"]) == ("one", "OK: one", "two")
    assert (system["role"], calls["role"], not calls.get("content")) == (
        "system",
        "assistant",
        True,
    )
    assert calls["tool_calls"] == [call]
    assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", "c1", "shipped")


@pytest.mark.parametrize("reached", [klass], indirect=True, ids=["klass"])
@pytest.mark.parametrize("method", ["invoke_once", "create_session"])
async def test_an_agent_that_cannot_be_told_says_why(reached, method):
    assert "'context'" in capabilities_of(reached.backend).history_problems[method]


@every_way
async def test_calls_at_the_same_time_do_not_see_each_other(reached):
    messages = [f"message {i}" for i in range(5)]

    results = await asyncio.gather(*map(reached.backend.invoke_once, messages))

    assert [result.response for result in results] == [f"OK: {m}" for m in messages]
    assert sorted(reached.heard()) == [[message] for message in messages]


@every_way
async def test_a_session_remembers_and_no_other_does(reached):
    one, two = await reached.backend.create_session(), await reached.backend.create_session()

    for session, message in ((one, "a"), (two, "b"), (one, "c")):
        await session.send(message)

    assert reached.heard() == [["a"], ["b"], ["a", "c"]]
    await one.close()
    await two.close()


@pytest.mark.parametrize(
    "reached", [function, coroutine, http, chat, process, semantic_kernel], indirect=True,
    ids=lambda way: way.__name__,
)  # fmt: skip
async def test_a_session_can_be_told_what_was_said_without_it(reached):
    session = await reached.backend.create_session()

    assert isinstance(session, AcceptsHistory)
    session.remember(
        [{"role": "user", "content": "one"}, {"role": "assistant", "content": "OK: one"}]
    )
    await session.send("two")

    assert reached.heard() == [["one", "two"]]
    await session.close()


@every_way
async def test_a_session_streams_its_answer(reached):
    session = await reached.backend.create_session()

    pieces = [piece async for piece in session.send_streaming("hello")]

    assert "".join(pieces).strip() == "OK: hello"
    await session.close()


@every_way
async def test_a_session_may_be_closed_twice(reached):
    session = await reached.backend.create_session()

    await session.close()
    await session.close()

    assert (await reached.backend.invoke_once("hello")).response == "OK: hello"


@every_way
async def test_a_failure_is_a_backend_error_that_says_what_happened(reached):
    with pytest.raises(BackendError, match="as told"):
        await reached.backend.invoke_once("fail")


@every_way
async def test_a_failure_does_not_end_the_session(reached):
    session = await reached.backend.create_session()

    with pytest.raises(BackendError, match="as told"):
        await session.send("fail")

    assert (await session.send("again")).response == "OK: again"
    await session.close()


@every_way_with_time_limit
async def test_the_time_limit_holds(hurried):
    started = asyncio.get_running_loop().time()

    with pytest.raises(BackendError, match=r"0\.3 ?s") as raised:
        await hurried.backend.invoke_once("hang")

    assert asyncio.get_running_loop().time() - started < 30  # what hangs does so for 60 s
    assert isinstance(raised.value, BackendTimeoutError) or "timeout" in str(raised.value)


@every_way_with_time_limit
async def test_the_time_limit_holds_in_a_session(hurried):
    session = await hurried.backend.create_session()

    with pytest.raises(BackendError, match=r"0\.3 ?s"):
        await session.send("hang")
    await session.close()


@every_way
async def test_cancellation_passes_through_and_leaves_no_task(reached):
    before = asyncio.all_tasks()
    call = asyncio.create_task(reached.backend.invoke_once("hang"))
    await reached.is_asked()

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


@every_way
async def test_it_may_be_initialized_and_torn_down_twice(reached):
    await reached.backend.initialize()

    assert (await reached.backend.invoke_once("hello")).response == "OK: hello"
    await reached.backend.teardown()
    await reached.backend.teardown()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_it_may_be_torn_down_without_having_been_initialized(way):
    with way(PATIENT) as one:
        await one.backend.teardown()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_it_serves_one_event_loop_after_the_other(way):
    async def once():
        await one.backend.initialize()
        result = await one.backend.invoke_once("hello")
        await one.backend.teardown()
        return result.response

    with way(PATIENT) as one:
        assert [asyncio.run(once()), asyncio.run(once())] == ["OK: hello"] * 2
