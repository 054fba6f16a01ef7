"""What the adapter of every framework keeps to, on real objects of the framework.

Each agent here has one tool, and its model plays the part of `support.frameworks.script`: it
answers `OK: <message>`, looks up every `order <id>`, fails at "fail", and never answers "hang".
A framework takes part with a module in `tests/support/frameworks`.
"""

import asyncio
import gc
import json
from pathlib import Path

import certifi
import pytest

from fakes import FakeOpenAI
from holodeck.errors import BackendError, BackendTimeoutError
from holodeck.lib.backends.base import AcceptsHistory, AgentBackend, AgentSession
from holodeck.lib.backends.frameworks import FRAMEWORKS, adapt, find_framework
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.llm.limits import override_call_limit
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.results.outcome import Outcome
from support.frameworks import INVALID_CALLS, all_rows, missing_frameworks, script

PATIENT = ExecutionConfig(llm_timeout=600, max_retries=0)
CONTEXT = [
    {"role": "user", "content": "my name is Ada"},
    {"role": "assistant", "content": "Hello Ada"},
]
ROWS = all_rows()


@pytest.fixture(scope="module")
def one_authority(tmp_path_factory):
    """A file with one certificate: each client takes 20 ms to read those of all authorities."""
    end = "-----END CERTIFICATE-----\n"
    first, *_ = Path(certifi.where()).read_text().partition(end)
    path = tmp_path_factory.mktemp("authorities") / "one.pem"
    path.write_text(first + end)
    return path


@pytest.fixture(params=ROWS, ids=[row.__name__ for row in ROWS])
def subject(request, one_authority, monkeypatch):
    """A user's agent whose model is the fake server."""
    monkeypatch.setenv("SSL_CERT_FILE", str(one_authority))
    with FakeOpenAI(script) as server:
        yield request.param(server)


@pytest.fixture
async def backend(subject):
    """The agent as a backend."""
    backend = CallableBackend(subject.agent, execution=PATIENT)
    await backend.initialize()
    yield backend
    await backend.teardown()
    if subject.close is not None:
        await subject.close()


@pytest.fixture
def reads(subject):
    """What the adapter says that it reads."""
    return adapt(subject.agent).reads


def told(request):
    """Everything that a request told the model."""
    return json.dumps([request.system, request.messages])


def test_every_framework_has_an_agent_here():
    with FakeOpenAI(script) as server:
        found = {find_framework(row(server).agent) for row in ROWS}

    assert found == {one for one in FRAMEWORKS if one.name not in missing_frameworks()}


async def test_it_keeps_the_protocol(backend):
    session = await backend.create_session()

    assert isinstance(backend, AgentBackend)
    assert isinstance(session, AgentSession)
    assert isinstance(session, AcceptsHistory)
    await session.close()
    await session.close()


async def test_it_answers_with_its_instructions(subject, backend):
    result = await backend.invoke_once("hello")

    assert (result.response, result.is_error, result.source) == ("OK: hello", False, "adapter")
    assert subject.instructions is None or subject.instructions in told(subject.server.requests[0])


async def test_a_turn_without_tools_has_no_tool_calls(backend, reads):
    result = await backend.invoke_once("hello")

    assert result.tool_calls == ([] if "tool calls" in reads else None)
    assert result.tool_results == []


async def test_a_tool_call_has_its_name_arguments_and_result(subject, backend, reads):
    result = await backend.invoke_once("Where is order 7?")

    assert result.response == "OK: order 7 is shipped"
    if "tool calls" not in reads:
        assert result.tool_calls is None
        return
    [call] = result.tool_calls
    assert (call["name"], call["arguments"]) == (subject.tool, {"order_id": "7"})
    if "tool results" not in reads:
        assert result.tool_results == []
        return
    [tool_result] = result.tool_results
    assert (tool_result["name"], tool_result["result"]) == (subject.tool, "order 7 is shipped")
    assert tool_result["call_id"] == call["call_id"]
    assert not tool_result.get("is_error", False)


async def test_tool_calls_of_one_request_each_have_their_own_result(subject, backend, reads):
    result = await backend.invoke_once("Where are order 7 and order 8?")

    if not {"tool calls", "tool results"} <= reads:
        pytest.skip("the framework does not report results of tools")
    ids = [call["call_id"] for call in result.tool_calls]
    by_id = {one["call_id"]: one["result"] for one in result.tool_results}
    assert [call["arguments"]["order_id"] for call in result.tool_calls] == ["7", "8"]
    assert [by_id[one] for one in ids] == ["order 7 is shipped", "order 8 is shipped"]


async def test_an_error_of_a_tool_is_reported_as_one(subject, backend, reads):
    if "tool errors" not in reads:
        pytest.skip("the framework does not report errors of tools")
    if subject.catches_tool_errors:
        result = await backend.invoke_once("Where is order lost?")
    else:
        with pytest.raises(BackendError, match="no such order") as raised:
            await backend.invoke_once("Where is order lost?")
        result = raised.value.seen

    [call] = result.tool_calls
    assert call["name"] == subject.tool
    if subject.catches_tool_errors:
        [tool_result] = result.tool_results
        assert tool_result["is_error"] is True
        assert "no such order" in str(tool_result["result"])


@pytest.mark.parametrize("prompt", INVALID_CALLS)
async def test_a_case_fails_if_the_model_makes_a_call_that_no_tool_can_take(
    subject, backend, reads, tmp_path, prompt
):
    if not {"tool calls", "tool errors"} <= reads:
        pytest.skip("the framework does not report errors of tools")
    if not subject.runs_tools:
        pytest.skip("the user's code decides what becomes of the call")
    outcome, reasons = await verdict(backend, tmp_path, prompt)

    if "malformed" in prompt and not subject.reads_malformed_arguments:
        assert outcome is Outcome.AGENT_ERROR
        return
    tool = INVALID_CALLS[prompt][0] if "unknown" in prompt else subject.tool
    assert outcome is Outcome.FAILED, reasons
    assert any(reason.startswith(f"invalid tool call: {tool}: ") for reason in reasons)


async def test_a_case_does_not_fail_because_a_tool_raised(subject, backend, reads, tmp_path):
    if not subject.catches_tool_errors:
        pytest.skip("the framework ends the turn")

    outcome, reasons = await verdict(backend, tmp_path, "Where is order lost?")

    assert outcome is Outcome.PASSED, reasons


async def verdict(backend, folder, prompt):
    """Return what becomes of a case that asks the agent, and why."""
    metric = {"metric": "contains", "value": "OK"}
    case = {"input": prompt, "evaluations": [metric]}
    agent = Agent.model_validate({"name": "a", "backend": "x:y", "test_cases": [case]})
    executor = TestExecutor(str(folder / "agent.yaml"), agent_config=agent, backend=backend)
    [result] = (await executor.execute_tests()).results
    return result.outcome, result.reasons()


async def test_the_token_usage_is_that_of_all_requests(subject, backend, reads):
    result = await backend.invoke_once("Where is order 7?")

    if "token usage" not in reads:
        assert result.token_usage is None
        return
    requests = len(subject.server.requests)
    usage = result.token_usage
    assert requests >= 2
    assert (usage.prompt_tokens, usage.completion_tokens) == (10 * requests, 5 * requests)


async def test_the_arguments_that_a_tool_needs_are_those_of_its_schema(subject, backend):
    await backend.initialize()
    found = backend.describe()

    known = found.required_arguments.get(subject.tool, ["order_id"])
    assert known == ["order_id"]
    assert set(found.required_arguments) <= set(found.tools or found.required_arguments)


async def test_the_model_that_answered_is_the_one_that_was_asked(subject, backend):
    result = await backend.invoke_once("Where is order 7?")

    asked = {request.body["model"] for request in subject.server.requests}
    assert {result.model} == asked


async def test_unknown_token_usage_is_not_zero(subject, backend):
    subject.server.when("hello", content="OK: hello", usage=None)

    result = await backend.invoke_once("hello")

    assert result.response == "OK: hello"
    assert result.token_usage is None


async def test_the_agents_that_speak_have_their_names(subject, backend, reads):
    result = await backend.invoke_once("hello")

    assert result.agents == (subject.agents if "agents" in reads else None)


async def test_the_tools_of_the_agent_are_known(subject, backend, reads):
    result = await backend.invoke_once("hello")

    if "tools" in reads:
        assert subject.tool in result.tools
    else:
        assert result.tools is None


async def test_a_session_keeps_its_history(subject, backend):
    session = await backend.create_session()

    await session.send("my name is Ada")
    result = await session.send("who am I")

    assert result.response == "OK: who am I"
    assert "my name is Ada" in told(subject.server.requests[-1])
    await session.close()


async def test_tool_calls_belong_to_their_turn(subject, backend, reads):
    session = await backend.create_session()

    first = await session.send("Where is order 7?")
    second = await session.send("thanks")

    if "tool calls" in reads:
        assert (len(first.tool_calls), second.tool_calls) == (1, [])
    await session.close()


async def test_concurrent_conversations_do_not_see_each_other(subject, backend):
    async def converse(i):
        session = await backend.create_session()
        await session.send(f"I am user{i}x")
        result = await session.send(f"Where is order {i}?")
        await session.close()
        return result

    results = await asyncio.gather(*map(converse, range(8)))

    assert [result.response for result in results] == [
        f"OK: order {i} is shipped" for i in range(8)
    ]
    for request in subject.server.requests:
        assert sum(f"user{i}x" in told(request) for i in range(8)) == 1
    for i, result in enumerate(results):
        for call in result.tool_calls or ():
            assert call["arguments"] == {"order_id": str(i)}


async def test_single_questions_do_not_see_each_other(subject, backend):
    for message in ("first", "second"):
        await backend.invoke_once(message)

    assert "first" not in told(subject.server.requests[-1])


async def test_earlier_messages_reach_the_model(subject, backend):
    if not subject.takes_context:
        pytest.skip("the framework takes no earlier messages")
    await backend.invoke_once("who am I", CONTEXT)
    session = await backend.create_session(CONTEXT)
    await session.send("who am I")

    for request in subject.server.requests:
        assert "my name is Ada" in told(request)
        assert "Hello Ada" in told(request)
        assert request.prompt == "who am I"
    await session.close()


async def test_a_session_remembers_messages_it_did_not_take_part_in(subject, backend):
    if not subject.takes_context:
        pytest.skip("the framework takes no earlier messages")
    session = await backend.create_session()
    await session.send("hello")

    session.remember(CONTEXT)
    await session.send("who am I")

    assert "my name is Ada" in told(subject.server.requests[-1])
    await session.close()


async def test_a_streamed_answer_is_the_answer(subject, backend):
    session = await backend.create_session()

    pieces = [piece async for piece in session.send_streaming("hello to you")]

    assert "".join(pieces).strip() == "OK: hello to you"
    await session.close()


async def test_an_answer_comes_in_pieces_if_the_framework_streams(backend, reads):
    session = await backend.create_session()

    pieces = [piece async for piece in session.send_streaming("hello to you")]

    assert (len(pieces) > 1) is ("streaming" in reads)
    await session.close()


async def test_a_streamed_turn_is_part_of_the_history(subject, backend):
    session = await backend.create_session()

    async for _ in session.send_streaming("my name is Ada"):
        pass
    await session.send("who am I")

    assert "my name is Ada" in told(subject.server.requests[-1])
    assert "OK: my name is Ada" in told(subject.server.requests[-1])
    await session.close()


async def test_the_users_callbacks_still_run(subject, backend):
    if subject.noticed is None:
        pytest.skip("the agent has no callbacks")

    await backend.invoke_once("Where is order 7?")

    assert subject.noticed()


async def test_the_users_object_is_as_it_was(subject, backend):
    before = subject.snapshot()

    await backend.invoke_once("Where is order 7?")
    session = await backend.create_session()
    await session.send("Where is order 8?")
    async for _ in session.send_streaming("hello"):
        pass
    with pytest.raises(BackendError):
        await session.send("fail")
    await session.close()
    await backend.teardown()

    assert subject.snapshot() == before


async def test_a_failing_request_is_a_backend_error(subject, backend):
    with pytest.raises(BackendError, match="as told"):
        await backend.invoke_once("fail")


async def test_a_failing_turn_reports_what_was_seen_until_then(subject, backend, reads):
    with pytest.raises(BackendError, match="as told") as raised:
        await backend.invoke_once("Where is order 7? then fail")

    seen = raised.value.seen
    assert seen is not None
    if "tool calls" in reads and seen.tool_calls is not None:
        assert [call["name"] for call in seen.tool_calls] == [subject.tool]


async def test_the_session_continues_after_a_failure_as_it_was_before(subject, backend):
    session = await backend.create_session()
    await session.send("my name is Ada")

    for message in ("fail", "Where is order 7? then fail"):
        with pytest.raises(BackendError, match="as told"):
            await session.send(message)
    result = await session.send("who am I")

    last = told(subject.server.requests[-1])
    assert result.response == "OK: who am I"
    assert "my name is Ada" in last
    assert "fail" not in last
    await session.close()


async def test_the_time_limit_holds_and_the_session_is_as_it_was(subject, backend):
    session = await backend.create_session()

    with override_call_limit(0.3), pytest.raises(BackendTimeoutError, match=r"0\.3 ?s"):
        await session.send("hang")
    result = await session.send("hello")

    assert result.response == "OK: hello"
    assert "hang" not in told(subject.server.requests[-1])
    await session.close()


async def test_a_turn_out_of_time_reports_what_was_seen_until_then(subject, backend, reads):
    session = await backend.create_session()

    with override_call_limit(1), pytest.raises(BackendTimeoutError) as raised:
        await session.send("Where is order 7? then hang")

    seen = raised.value.seen
    if "tool calls" in reads and len(subject.server.requests) > 1 and seen.tool_calls is not None:
        assert [call["name"] for call in seen.tool_calls] == [subject.tool]
    await session.close()


@pytest.mark.parametrize("message", ["hang", "Where is order 7? then hang"])
async def test_cancellation_leaves_no_task_and_the_session_as_it_was(subject, backend, message):
    session = await backend.create_session()
    before = asyncio.all_tasks()
    call = asyncio.create_task(session.send(message))
    await subject.server.saw(2 if "order" in message else 1)

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert (await session.send("hello")).response == "OK: hello"
    assert "hang" not in told(subject.server.requests[-1])
    await session.close()


@pytest.fixture(scope="module")
def _frozen():
    """Modules of frameworks stay to the end: collecting garbage need not look at them each time."""
    gc.collect()
    gc.freeze()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("_frozen")
def test_an_agent_on_a_second_event_loop_answers_or_says_what_to_do(subject):
    async def once():
        backend = CallableBackend(subject.agent, execution=PATIENT)
        await backend.initialize()
        try:
            result = await backend.invoke_once("Where is order 7?")
        except BackendError as error:
            return str(error)
        finally:
            await backend.teardown()
        return result.response

    first, second = asyncio.run(once()), asyncio.run(once())
    subject.agent = subject.parts = subject.close = None
    gc.collect()  # the client's connections, which nothing can close after their loops

    assert first == "OK: order 7 is shipped"
    assert second == first or "was used on another event loop; create" in second
