import asyncio
import contextvars
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from holodeck.errors import BackendError, BackendInitError, BackendSessionError, ConfigError
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.models.config import ExecutionConfig
from holodeck.models.token_usage import TokenUsage

CONTEXT = [{"role": "user", "content": "before"}]


@dataclass
class Answer:
    output: str


class Reply(BaseModel):
    text: str


class Runner:
    def run(self, text, context):
        return f"{text} after {len(context)}"


class Callee:
    async def __call__(self, text):
        return f"{text} after 1"


class Invoked:
    async def invoke_once(self, message, context=None):
        return ExecutionResult(response=f"{message} after {len(context)}")


async def told_later(text, context):
    return f"{text} after {len(context)}"


async def asked(target, message="hi", context=CONTEXT, **options):
    backend = CallableBackend(target, **options)
    try:
        return await backend.invoke_once(message, context)
    finally:
        await backend.teardown()


@pytest.mark.parametrize(
    "target",
    [
        lambda text: f"{text} after 1",
        lambda text, context: f"{text} after {len(context)}",
        lambda message, history, /: f"{message} after {len(history)}",
        lambda text, *, context: f"{text} after {len(context)}",
        lambda text, temperature=0.5: f"{text} after {1 if temperature == 0.5 else 'all'}",
        lambda text, a=1, context=(): f"{text} after {len(context) * a}",
        lambda *all_of_it: f"{all_of_it[0]} after {len(all_of_it)}",
        told_later,
        lambda text: told_later(text, CONTEXT),
        Runner,
        Runner(),
        Runner().run,
        Callee,
        Callee(),
        Invoked,
        Invoked(),
        lambda: Runner(),  # noqa: PLW0108 - a factory is a function
    ],
    ids=[
        "function",
        "function with context",
        "any names",
        "context by name",
        "another default",
        "default and context",
        "rest",
        "async function",
        "function that returns a coroutine",
        "class with run",
        "object with run",
        "method",
        "class with call",
        "object with call",
        "class with invoke_once",
        "object with invoke_once",
        "factory",
    ],
)
async def test_agents_of_every_shape_answer(target):
    assert (await asked(target)).response == "hi after 1"


@pytest.mark.parametrize(
    ("given", "response"),
    [
        ("text", "text"),
        ("", ""),
        (ExecutionResult(response="done"), "done"),
        ({"response": "a", "output": "b"}, "a"),
        ({"output": "b"}, "b"),
        ({"text": "c"}, "c"),
        (Answer("d"), "d"),
        (Reply(text="e"), "e"),
        ({"output": {"n": 1}}, '{"n": 1}'),
        ({"response": 4}, "4"),
    ],
)
async def test_answers_of_every_shape_are_read(given, response):
    assert (await asked(lambda _: given)).response == response


async def test_a_structured_answer_is_kept_beside_its_text():
    result = await asked(lambda _: {"output": Reply(text="e")})

    assert (result.response, result.structured_output) == ('{"text": "e"}', {"text": "e"})


async def test_tools_and_tokens_are_read():
    given = {
        "response": "a",
        "tool_calls": [
            "plain",
            {"name": "search", "args": {"q": 1}, "id": "x1", "result": ["r"]},
            {"name": "find", "arguments": '{"q": 2}', "result": None},
            {"name": "lost", "arguments": "{"},
        ],
        "tool_results": [{"name": "plain", "output": "p", "is_error": True}],
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }

    result = await asked(lambda _: given)

    assert result.tool_calls == [
        {"name": "plain"},  # its arguments are unknown
        {"name": "search", "arguments": {"q": 1}, "call_id": "x1"},
        {"name": "find", "arguments": {"q": 2}, "call_id": "call_2"},
        {"name": "lost", "arguments": {}, "error": "the arguments are not a JSON object: {"},
    ]
    assert result.tool_results == [
        {"name": "search", "result": ["r"], "call_id": "x1"},
        {"name": "find", "result": None, "call_id": "call_2"},
        {"name": "plain", "result": "p", "is_error": True},
    ]
    assert result.token_usage == TokenUsage.of(3, 4)


@pytest.mark.parametrize(
    "usage",
    [{"input_tokens": 3}, {"completion_tokens": 4}, {"prompt_tokens": 3, "output_tokens": None}],
    ids=["read", "written", "null"],
)
async def test_half_of_the_tokens_are_not_taken_for_all(usage):
    result = await asked(lambda _: {"response": "a", "usage": usage})

    assert result.token_usage is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "the agent returned None; return the answer as text, or a mapping with 'response'"),
        (3, r"the agent returned an int \(3\); return"),
        ({"answer": "a"}, "the agent returned a mapping with 'answer'; return"),
        ({}, "a mapping with nothing in it"),
        ({"response": None}, "a mapping with 'response'"),
        ({"response": "a", "tool_calls": {"name": "x"}}, "tool_calls must be a list, not a mapp"),
        ({"response": "a", "tool_calls": [{"id": "x"}]}, r"tool_calls\[0\] has no name"),
        (
            {"response": "a", "tool_calls": [{"name": "x", "reslt": 1}]},
            r"tool_calls\[0\] is a mapping with unknown key 'reslt'; did you mean 'result'\?",
        ),
        (
            {"response": "a", "tool_calls": ["x"], "tool_results": [{"name": "x", "reply": 1}]},
            r"tool_results\[0\] is a mapping with unknown key 'reply'",
        ),
        (
            {"response": "a", "tool_calls": [{"name": "x", "result": 1, "error": "no"}]},
            r"tool_calls\[0\] has a result and an 'error'",
        ),
        ({"response": b"a"}, "whose answer is a bytes"),
        ({"response": iter("ab")}, "whose answer is a str_iterator|whose answer is a str_ascii"),
        ({"response": {"said": object()}}, "whose answer is a mapping with 'said'"),
        ({"response": "a", "tool_results": [{}]}, r"tool_results\[0\] has no name"),
        ({"response": "a", "usage": {"prompt_tokens": -1}}, "usage is a mapping"),
    ],
)
async def test_an_answer_that_cannot_be_read_says_what_to_return(given, said):
    with pytest.raises(BackendSessionError, match=said):
        await asked(lambda _: given)


async def test_a_coroutine_inside_of_a_mapping_is_no_answer():
    async def later():
        return "a"

    unawaited = later()
    try:
        with pytest.raises(BackendSessionError, match="whose answer is a coroutine"):
            await asked(lambda _: {"response": unawaited})
    finally:
        unawaited.close()


async def test_data_inside_of_a_mapping_is_an_answer():
    result = await asked(lambda _: {"response": {"when": [1, None], "who": Reply(text="a")}})

    assert result.response == '{"when": [1, null], "who": {"text": "a"}}'


async def test_a_call_with_an_error_failed_with_that_text():
    called = {"name": "pay", "args": {"n": 1}, "error": "declined"}

    result = await asked(lambda _: {"response": "a", "tool_calls": [called]})

    assert result.tool_results == [
        {"name": "pay", "result": "declined", "is_error": True, "call_id": "call_0"}
    ]


class Broken(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no"), "ValueError: no"),
        (KeyError(), "KeyError"),
        (TimeoutError("mine"), "TimeoutError: mine"),
        (SystemExit(2), "SystemExit: 2"),
        (Broken(), "Broken"),
        (asyncio.CancelledError(), "the agent cancelled itself"),
    ],
)
async def test_whatever_an_agent_raises_is_a_session_error(error, said):
    async def agent(message):
        raise error

    with pytest.raises(BackendSessionError, match=f"^{said}$") as raised:
        await asked(agent)
    assert raised.value.__cause__ is error


async def test_a_class_is_instantiated_once_per_conversation_and_closed():
    made, closed = [], []

    class Agent:
        def __init__(self):
            made.append(self)

        def run(self, message):
            return message

        async def close(self):
            closed.append(self)

    backend = CallableBackend(Agent)
    await backend.invoke_once("a")
    await backend.invoke_once("b")
    session = await backend.create_session()
    await session.send("c")
    await session.send("d")

    assert (len(made), closed) == (3, made[:2])
    await session.close()
    await session.close()
    await backend.teardown()
    assert closed == made


async def test_a_shared_object_is_closed_at_teardown():
    closed = []

    class Agent:
        def run(self, message):
            return message

        def close(self):
            closed.append(self)

    backend = CallableBackend(Agent())
    await backend.invoke_once("a")
    assert closed == []
    await backend.teardown()
    await backend.teardown()

    assert len(closed) == 1


async def test_an_agent_that_cannot_be_closed_still_answers(caplog):
    class Agent:
        def run(self, message):
            return message

        def close(self):
            raise OSError("stuck")

    assert (await asked(Agent)).response == "hi"
    assert "closing the agent failed: OSError: stuck" in caplog.text


async def test_a_blocking_agent_runs_beside_the_loop_with_context_variables():
    variable = contextvars.ContextVar("variable")
    variable.set("mine")

    def agent(message):
        assert threading.current_thread() is not threading.main_thread()
        return variable.get()

    assert (await asked(agent)).response == "mine"


async def test_an_agent_that_makes_backends_is_used_as_one():
    from fakes import ScriptedBackend

    scripted = ScriptedBackend()
    backend = CallableBackend(lambda: scripted)
    await backend.initialize()
    session = await backend.create_session()

    assert (await session.send("a")).response == "OK: a"
    assert scripted.sessions[0].history[0]["content"] == "a"
    await session.close()
    await backend.teardown()
    assert (scripted.initialized, scripted.torn_down) == (1, 1)
    assert scripted.sessions[0].closed


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (3, "an int is not an agent; name a function"),
        (lambda *, x: x, "takes no input"),
        (lambda _, _b, c: c, "needs 'c' besides the input and the context"),
        (lambda _, *, key: key, "needs 'key' besides"),
        ("agents:missing", "'agents:missing'.* no 'missing'"),
        ("nothing_here:x", "cannot be imported"),
        ("agents", "'agents' is not 'module:attribute'"),
    ],
)
async def test_what_is_no_agent_is_a_configuration_error(tmp_path, target, said):
    (tmp_path / "agents.py").write_text("def agent(message): return message")

    with pytest.raises(ConfigError, match=said):
        await CallableBackend(target, tmp_path).initialize()


async def test_an_agent_is_found_beside_the_agent_yaml(tmp_path):
    (tmp_path / "agents.py").write_text("def agent(message): return message + '!'")

    assert (await asked("agents:agent", base_dir=tmp_path)).response == "hi!"


async def test_a_class_that_cannot_be_made_says_so_at_once():
    class Agent:
        def __init__(self, key):
            self.key = key

        def run(self, message):
            return message

    with pytest.raises(BackendInitError, match=r"the agent cannot be created: TypeError: .*'key'"):
        await CallableBackend(Agent).initialize()


async def test_a_backend_that_cannot_be_made_ready_says_so():
    from fakes import ScriptedBackend

    with pytest.raises(BackendInitError, match="the agent cannot be created: OSError: down"):
        await CallableBackend(lambda: ScriptedBackend(init_error=OSError("down"))).initialize()


async def test_a_hanging_function_is_left_behind():
    go_on = threading.Event()
    quick = ExecutionConfig(llm_timeout=0.05)

    with pytest.raises(BackendError, match=r"^no answer within 0\.05 s$"):
        await asked(lambda _: go_on.wait(30), execution=quick)
    go_on.set()


async def test_an_answer_is_too_late_also_where_it_could_not_be_cut_short():
    async def blocks(_):
        time.sleep(0.01)  # noqa: ASYNC251 - agents do
        return "late"

    with pytest.raises(BackendError, match=r"^no answer within 0\.001 s$"):
        await asked(blocks, execution=ExecutionConfig(llm_timeout=0.001))


async def test_a_closed_conversation_answers_no_more():
    session = await CallableBackend(lambda message: message).create_session()
    await session.close()

    with pytest.raises(BackendSessionError, match="closed"):
        await session.send("a")


async def test_an_agent_that_is_told_of_nothing_refuses_lines_that_it_should_remember():
    session = await CallableBackend(Callee).create_session()

    with pytest.raises(ConfigError, match="no parameter 'context'"):
        session.remember([{"role": "assistant", "content": "Hello"}])


@pytest.mark.parametrize("can_remember", [True, False])
async def test_a_session_of_the_users_own_is_told_of_lines_if_it_can_remember(can_remember):
    from fakes import ScriptedBackend

    told = []

    class Remembering(ScriptedBackend):
        async def create_session(self):
            session = await super().create_session()
            if can_remember:
                session.remember = told.extend
            return session

    session = await CallableBackend(Remembering).create_session()

    refused = nullcontext() if can_remember else pytest.raises(ConfigError, match="remember")
    with refused:
        session.remember([{"role": "assistant", "content": "Hello"}])
    assert [one["content"] for one in told] == ["Hello"] * can_remember


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"tool_call": [{"name": "pay"}]}, "unknown key 'tool_call'; did you mean 'tool_calls'?"),
        ({"toolCalls": [{"name": "pay"}]}, "unknown key 'toolCalls'; did you mean 'tool_calls'?"),
        ({"tools": [{"name": "pay"}]}, "unknown key 'tools'; did you mean 'tool_calls'?"),
        ({"contexts": ["a"]}, "unknown key 'contexts'; did you mean 'retrieval_context'?"),
        ({"tool_results": [{"name": "pay", "result": 1}]}, "'tool_results' without 'tool_calls'"),
        (
            {"id": 1, "object": "m"},
            "unknown keys 'id', 'object'. The keys are response, output, text",
        ),
    ],
    ids=["singular", "camel case", "tools", "contexts", "results alone", "other keys"],
)
async def test_a_key_that_nothing_reads_in_the_returned_mapping_is_an_error(given, reason):
    with pytest.raises(BackendSessionError) as caught:
        await asked(lambda _: {"response": "done", **given})

    assert reason in str(caught.value)


async def test_what_the_agent_adds_about_itself_stands_under_metadata():
    result = await asked(lambda _: {"response": "done", "metadata": {"id": 1}})

    assert (result.response, result.tool_calls) == ("done", None)


@pytest.mark.parametrize("given", ["done", {"response": "done"}, {"text": "x", "tool_calls": None}])
async def test_tool_calls_that_the_agent_does_not_report_are_unknown(given):
    result = await asked(lambda _: given)

    assert (result.tool_calls, result.token_usage) == (None, None)


async def test_an_empty_list_says_that_no_tool_was_called():
    assert (await asked(lambda _: {"response": "done", "tool_calls": []})).tool_calls == []
