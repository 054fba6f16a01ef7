"""Agents in processes of their own: real ones, in Python and in other programs."""

import ast
import asyncio
import sys
import venv
from pathlib import Path

import pytest

from holodeck.errors import (
    BackendInitError,
    BackendSessionError,
    BackendTimeoutError,
)
from holodeck.lib.backends import frameworks
from holodeck.lib.backends.process.backend import ProcessBackend, command_of
from holodeck.lib.backends.python import worker
from holodeck.lib.llm.limits import override_call_limit
from holodeck.lib.processes import process_guard
from holodeck.lib.user_code.raised import raised_error
from holodeck.models.backend import ProcessBackendConfig
from holodeck.models.config import ExecutionConfig
from holodeck.models.token_usage import TokenUsage
from support.processes import is_running, until, until_gone

SPEAKER = """
import json, os, sys, time

def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def requests():
    for line in sys.stdin:
        request = json.loads(line)
        if request["method"] == "initialize":
            say({"id": request["id"], "result": {"protocol": 1, **ABILITIES}})
        elif request["method"] in {"open", "close"}:
            say({"id": request["id"], "result": {}})
        else:
            yield request, request["params"].get("message")
"""
"""A program that speaks the protocol; the tests add what it does."""


@pytest.fixture
async def reach(tmp_path):
    """Starts the agent of `bot.py`; the parts of the configuration can be given."""
    opened = []

    async def start(code, execution=None, **config):
        (tmp_path / "bot.py").write_text(code)
        config = {"type": "process", "target": "bot:agent", **config}
        backend = ProcessBackend(ProcessBackendConfig(**config), tmp_path, execution)
        opened.append(backend)
        await backend.initialize()
        return backend

    yield start
    for backend in opened:
        await backend.teardown()


@pytest.fixture
def reach_program(reach):
    """Starts a program that speaks the protocol itself."""

    async def start(code, execution=None, abilities="{}", **config):
        text = f"ABILITIES = {abilities}\n{SPEAKER}{code}"
        command = [sys.executable, "bot.py"]
        return await reach(text, execution, target=None, command=command, **config)

    return start


def pids(tmp_path):
    return [int(one) for one in (tmp_path / "pids").read_text().split()]


NOTES_PID = "import os\nwith open('pids', 'a') as file:\n    print(os.getpid(), file=file)\n"


# What an agent returns


async def test_the_answer_is_read_as_that_of_an_agent_in_python(reach):
    backend = await reach("""
def agent(message):
    calls = [{"name": "find", "arguments": {"id": 7}, "result": "shipped", "agent": "triage"}]
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    return {"response": "OK", "tool_calls": calls, "usage": usage, "agents": ["triage", "orders"]}
""")

    result = await backend.invoke_once("hi")

    assert (result.response, result.agents, result.source) == (
        "OK",
        ["triage", "orders"],
        "adapter",
    )
    [call] = result.tool_calls
    assert (call["name"], call["arguments"], call["agent"]) == ("find", {"id": 7}, "triage")
    assert [one["result"] for one in result.tool_results] == ["shipped"]
    assert result.token_usage == TokenUsage.of(3, 4)


OBJECTS = {
    "an object with attributes": "types.SimpleNamespace(text='OK', tool_calls=['find'])",
    "text that no encoding knows": "'OK \\udc00'",
    "values that JSON does not know": "{'response': 'OK', 'tool_calls': [{'name': 'find',"
    " 'arguments': {'day': datetime.date(2026, 1, 2), 'of': {1}, 'raw': b'x'}}]}",
}


@pytest.mark.parametrize("returned", OBJECTS.values(), ids=OBJECTS)
async def test_whatever_the_agent_returns_arrives(reach, returned):
    backend = await reach(f"import datetime, types\ndef agent(message):\n    return {returned}\n")

    result = await backend.invoke_once("hi")

    assert result.response.startswith("OK")


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("None", "the agent returned None"),
        ("5", r"the agent returned an int \(5\)"),
        ("object()", "the agent returned an object; return the answer as text"),
        ("{'response': 'x', 'toolCalls': []}", "unknown key 'toolCalls'"),
    ],
)
async def test_an_answer_that_cannot_be_read_says_what_to_return(reach, returned, said):
    backend = await reach(f"def agent(message):\n    return {returned}\n")

    with pytest.raises(BackendSessionError, match=said):
        await backend.invoke_once("hi")


async def test_what_the_agent_prints_does_not_disturb_its_answers(reach):
    backend = await reach("""
import os, subprocess, sys
print("on import")
def agent(message):
    print("printed")
    os.write(1, b"written")
    sys.__stdout__.write("more")
    subprocess.run(["echo", "from a child"], check=True)
    return "OK " + repr(sys.stdin.read())
""")

    assert (await backend.invoke_once("hi")).response == "OK ''"


# How it is called

SHAPES = {
    "a class": "class agent:\n    def __init__(self): self.n = 0\n    def run(self, message):\n"
    "        self.n += 1\n        return f'{message} {self.n}'\n",
    "a factory": "class Bot:\n    async def run(self, message, context):\n"
    "        return f'{message} {len(context) // 2 + 1}'\n"
    "async def agent():\n    return Bot()\n",
    "an object": "class Bot:\n    def __call__(self, message, context=()):\n"
    "        return f'{message} {len(context) // 2 + 1}'\nagent = Bot()\n",
}


@pytest.mark.parametrize("code", SHAPES.values(), ids=SHAPES)
async def test_every_shape_of_agent_keeps_conversations_apart(reach, code):
    backend = await reach(code)
    one, two = await backend.create_session(), await backend.create_session()

    answers = [(await session.send("hi")).response for session in (one, two, one)]

    assert answers == ["hi 1", "hi 1", "hi 2"]
    await one.close()
    await two.close()


MAKERS = {
    "a class": "class agent(Bot): ...",
    "a function": "async def agent():\n    return Bot()",
}


@pytest.mark.parametrize(("scope", "answers"), [("case", "11"), ("run", "12")])
@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
async def test_the_scope_says_how_long_an_agent_lives_that_is_made(
    reach, tmp_path, maker, scope, answers
):
    code = """
class Bot:
    count = 0
    async def run(self, message):
        self.count += 1
        return str(self.count)
    def close(self):
        open("closed", "a").write("x")
"""
    backend = await reach(code + maker, scope=scope)

    results = [await backend.invoke_once("hi") for _ in answers]

    assert "".join(one.response for one in results) == answers
    await backend.teardown()
    assert len((tmp_path / "closed").read_text()) == (2 if scope == "case" else 1)


async def test_the_context_of_a_case_reaches_the_agent(reach):
    backend = await reach("def agent(message, context: dict):\n    return str(context)\n")

    answer = await backend.in_context({"user": "kim"}).invoke_once("hi")

    assert answer.response == "{'user': 'kim'}"


async def test_an_agent_that_takes_no_context_and_no_history_says_so(reach):
    backend = await reach("def agent(message):\n    return message\n")

    assert "'context'" in backend.capabilities.history_problems["invoke_once"]
    assert "the agent takes no context" in backend.capabilities.context_problem


async def test_variables_and_the_working_folder_are_set(reach, tmp_path):
    (tmp_path / "below").mkdir()
    code = "import os\ndef agent(message):\n    return os.environ['ANSWER'] + os.getcwd()\n"

    backend = await reach(code, env={"ANSWER": "42"}, cwd="below")

    assert (await backend.invoke_once("hi")).response == f"42{tmp_path.resolve() / 'below'}"


@pytest.mark.parametrize(
    ("code", "concurrency"),
    [("async def agent(message): ...", 10), ("def agent(message): ...", 1)],
    ids=["async", "not async"],
)
async def test_auto_runs_as_many_cases_as_the_processes_take(reach, code, concurrency):
    backend = await reach(code, workers=2)

    assert backend.capabilities.concurrency == 2 * concurrency


async def test_processes_work_at_the_same_time_and_each_takes_one_message(reach, tmp_path):
    backend = await reach(
        NOTES_PID
        + """
import pathlib, time
def agent(message):
    pathlib.Path(message).touch()
    while not (pathlib.Path("a").exists() and pathlib.Path("b").exists()):
        time.sleep(0.01)
    return str(os.getpid())
""",
        workers=2,
    )

    answers = await asyncio.gather(*map(backend.invoke_once, "ab"))

    assert {int(one.response) for one in answers} == set(pids(tmp_path))
    assert len(set(pids(tmp_path))) == 2


async def test_messages_wait_for_a_free_process_and_the_wait_is_not_the_agents(reach):
    backend = await reach(
        "import time\ndef agent(message):\n    time.sleep(0.1)\n    return 'OK'\n"
    )

    results = await asyncio.gather(*(backend.invoke_once("hi") for _ in range(3)))

    assert sorted(one.waited_ms >= 90 for one in results) == [False, True, True]


async def test_a_process_serves_all_conversations(reach, tmp_path):
    backend = await reach(NOTES_PID + "def agent(message):\n    return message\n")

    for _ in range(5):
        await backend.invoke_once("hi")

    assert len(pids(tmp_path)) == 1


# Errors


async def test_an_exception_is_told_with_file_and_line(reach, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    backend = await reach("""
def look_up(item):
    return {}[item]

async def agent(message):
    return look_up("tea")
""")

    with pytest.raises(BackendSessionError) as raised:
        await backend.invoke_once("hi")

    assert str(raised.value) == "KeyError: 'tea'"
    place = raised_error(raised.value)
    assert (place.location, place.function) == ("bot.py:3: return {}[item]", "look_up")
    assert place.traceback[0] == 'bot.py:6 in agent: return look_up("tea")'


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("way", ["sys.exit(4)", "raise BaseException('over')"])
async def test_sys_exit_is_an_error_of_its_conversation(reach, tmp_path, kind, way):
    code = f"import sys\n{kind} agent(message):\n    if message == 'exit':\n        {way}\n"
    backend = await reach(f"{NOTES_PID}{code}    return message\n")

    with pytest.raises(BackendSessionError, match=r"SystemExit: 4|BaseException: over"):
        await backend.invoke_once("exit")

    assert (await backend.invoke_once("hi")).response == "hi"
    assert len(pids(tmp_path)) == 1


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("os._exit(3)", "the agent's process ended with exit code 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the agent's process was killed by SIGSEGV"),
    ],
)
async def test_a_crash_is_an_error_with_the_last_lines_of_stderr(reach, tmp_path, way, said):
    backend = await reach(f"""{NOTES_PID}
import os, signal, sys
def agent(message):
    if message == "crash":
        print("x" * 5_000_000, file=sys.stderr)
        for number in range(1000):
            print("line", number, file=sys.stderr)
        sys.stderr.flush()
        {way}
    return message
""")

    with pytest.raises(BackendSessionError) as raised:
        await backend.invoke_once("crash")

    assert str(raised.value).startswith(f"{said}; the end of its stderr: ")
    assert str(raised.value).endswith("line 998 | line 999")
    assert len(str(raised.value)) < 1200
    assert (await backend.invoke_once("hi")).response == "hi"
    assert len(pids(tmp_path)) == 2


async def test_a_crash_ends_every_conversation_of_its_process_and_no_other(reach):
    backend = await reach(
        """
import asyncio, os
async def agent(message, context):
    if message == "crash":
        os._exit(1)
    await asyncio.sleep(600 if message == "wait" else 0)
    return str(os.getpid())
""",
        workers=2,
    )
    one, two, three = [await backend.create_session() for _ in range(3)]
    first = (await one.send("hi")).response
    others = {session: (await session.send("hi")).response for session in (two, three)}
    [neighbour] = [session for session, pid in others.items() if pid == first]
    [other] = [session for session, pid in others.items() if pid != first]

    waiting = asyncio.create_task(neighbour.send("wait"))
    with pytest.raises(BackendSessionError, match="exit code 1"):
        await one.send("crash")

    with pytest.raises(BackendSessionError, match="exit code 1"):
        await waiting
    with pytest.raises(BackendSessionError, match="exit code 1"):
        await neighbour.send("hi")
    assert (await other.send("hi")).response == others[other]
    for session in (one, two, three):
        await session.close()


async def test_a_process_that_cannot_be_replaced_is_an_error_of_each_conversation(reach, tmp_path):
    backend = await reach("import os\ndef agent(message):\n    os._exit(1)\n")
    (tmp_path / "bot.py").write_text("raise RuntimeError('no longer')\n")

    with pytest.raises(BackendSessionError, match="exit code 1"):
        await backend.invoke_once("hi")

    for _ in range(2):
        with pytest.raises(BackendInitError, match="RuntimeError: no longer"):
            await backend.invoke_once("hi")


# Time limits and cancellations

HANGS = {
    "not async": "def agent(message):\n    time.sleep(600 if message == 'hang' else 0)\n",
    "async, and blocks": "async def agent(message):\n"
    "    time.sleep(600 if message == 'hang' else 0)\n",
}


@pytest.mark.parametrize("code", HANGS.values(), ids=HANGS)
async def test_a_call_that_hangs_costs_its_process(reach, tmp_path, code):
    backend = await reach(f"{NOTES_PID}import time\n{code}    return message\n")

    with override_call_limit(0.3), pytest.raises(BackendTimeoutError, match=r"within 0\.3 s"):
        await backend.invoke_once("hang")

    await until_gone(*pids(tmp_path))
    assert (await backend.invoke_once("hi")).response == "hi"


async def test_what_a_call_that_hangs_has_started_ends_with_it(reach, tmp_path):
    backend = await reach(
        NOTES_PID
        + """
import subprocess
def agent(message):
    child = subprocess.Popen(["sleep", "600"])
    with open("pids", "a") as file:
        print(child.pid, file=file)
    child.wait()
"""
    )
    call = asyncio.create_task(backend.invoke_once("hang"))
    await until(lambda: len(pids(tmp_path)) == 2)

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    await until_gone(*pids(tmp_path))


async def test_an_async_call_that_is_cancelled_costs_no_other_conversation(reach, tmp_path):
    backend = await reach(
        NOTES_PID
        + """
import asyncio
async def agent(message):
    await asyncio.sleep(600 if message == "hang" else 0)
    return message
"""
    )
    session = await backend.create_session()
    await session.send("one")

    with override_call_limit(0.3), pytest.raises(BackendTimeoutError):
        await backend.invoke_once("hang")

    assert (await session.send("two")).response == "two"
    assert len(pids(tmp_path)) == 1
    await session.close()


# The start


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import no_such_module", r"ModuleNotFoundError: .*no_such_module.*bot.py:1: import"),
        ("other = 1", "'bot:agent': there is no 'agent' in it"),
        ("agent = 5", "an int is not an agent; name a function of the input"),
        ("def agent(a, b, c): ...", "agent needs 'c' besides the input and the context"),
        (
            "class agent:\n    initialize = invoke_once = create_session = teardown = print\n",
            "an AgentBackend runs inside of holodeck; write 'backend: module:object'",
        ),
        ("import os; os._exit(7)", "ended with exit code 7"),
        ("import sys; sys.exit('no licence')", "SystemExit: no licence"),
    ],
)
async def test_an_agent_that_cannot_be_loaded_says_why(reach, code, said):
    with pytest.raises(BackendInitError, match=said):
        await reach(code)


async def test_a_start_that_takes_too_long_says_what_stderr_had(reach, tmp_path):
    code = NOTES_PID + "print('loading', flush=True)\nimport time; time.sleep(600)\n"

    with pytest.raises(BackendInitError) as raised:
        await reach(code, start_timeout=2)

    assert str(raised.value) == (
        "the agent's process was not ready within 2 s (backend.start_timeout);"
        " the end of its stderr: loading"
    )
    await until_gone(*pids(tmp_path))


async def test_a_program_that_does_not_exist_is_named(reach):
    with pytest.raises(BackendInitError, match="no-such-program"):
        await reach("", target=None, command=["no-such-program", "x"])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('{"protocol": 2}', "answered 'initialize' with protocol 2; this version of holodeck"),
        ('{"protocol": 1, "concurrency": 0}', "with concurrency 0; expected a number"),
        ("7", "with protocol None"),
    ],
)
async def test_a_handshake_that_does_not_fit_says_what_was_found(reach_program, answer, said):
    text = f"""
for line in sys.stdin:
    say({{"id": json.loads(line)["id"], "result": {answer}}})
"""
    with pytest.raises(BackendInitError, match=said):
        await reach_program(text)


# Programs that speak the protocol


async def test_a_program_that_says_two_things_under_one_key_is_refused(reach_program):
    backend = await reach_program("""
for request, message in requests():
    print('{"id": %s, "result": {"response": "refund", "response": "done"}}' % request["id"])
""")

    with pytest.raises(BackendSessionError, match="with a duplicate key 'response'"):
        await backend.invoke_once("hi")


async def test_a_coroutine_inside_of_a_mapping_is_no_answer_of_a_process(reach):
    backend = await reach("""
async def later():
    return "a"

unawaited = later()

def agent(text):
    return {"response": unawaited}
""")

    with pytest.raises(BackendSessionError, match="whose answer is a coroutine"):
        await backend.invoke_once("hi")


async def test_a_program_that_prints_to_stdout_is_shown_the_line_and_what_to_do(reach_program):
    backend = await reach_program("""
for request, message in requests():
    if message == "print":
        print("Server started")
    say({"id": request["id"], "result": "OK"})
""")

    with pytest.raises(BackendSessionError) as raised:
        await backend.invoke_once("print")

    assert str(raised.value) == (
        "the agent's process wrote 'Server started' to stdout; stdout belongs to the protocol: let"
        " the agent print to stderr (docs/reference/process-protocol.md)"
    )
    assert (await backend.invoke_once("hi")).response == "OK"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"no": "id"}', "has no 'id' of a request with 'result' or 'error'"),
        ("[" * 100_000, "stdout belongs to the protocol"),
        ('{"method": "piece"}', "a 'piece' without 'id' and 'text'"),
    ],
)
async def test_a_line_that_is_no_answer_is_an_error(reach_program, line, said):
    backend = await reach_program(
        f"for request, message in requests(): print({line!r}, flush=True)"
    )

    with pytest.raises(BackendSessionError, match=said):
        await backend.invoke_once("hi")


async def test_an_error_of_a_program_needs_only_a_message(reach_program):
    backend = await reach_program("""
for request, message in requests():
    say({"id": request["id"], "error": {"message": "as told", "data": {"type": "RangeError"}}})
""")

    with pytest.raises(BackendSessionError, match=r"^RangeError: as told$"):
        await backend.invoke_once("hi")


async def test_what_was_seen_before_an_error_is_kept(reach_program):
    backend = await reach_program("""
for request, message in requests():
    data = {"seen": {"response": "", "tool_calls": ["find"]}, "file": "a.js", "line": 3}
    say({"id": request["id"], "error": {"message": "as told", "data": data}})
""")

    with pytest.raises(BackendSessionError) as raised:
        await backend.invoke_once("hi")

    assert [one["name"] for one in raised.value.seen.tool_calls] == ["find"]
    assert raised_error(raised.value).location == "a.js:3"


TOO_MUCH = ExecutionConfig(max_answer_mb=0.1)


async def test_an_answer_that_is_too_large_is_an_error_of_its_conversation(reach, tmp_path):
    code = NOTES_PID + "def agent(message):\n    return 'x' * int(message)\n"
    backend = await reach(code, TOO_MUCH)

    with pytest.raises(BackendSessionError, match=r"more than 0\.1 MB \(execution.max_answer_mb\)"):
        await backend.invoke_once("100000")

    assert len((await backend.invoke_once("99000")).response) == 99_000
    assert len(pids(tmp_path)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "sys.stdout.write('x' * 10**9)",
        "say({'id': request['id'], 'result': 'x' * 200_000})",
        "while True: say({'method': 'piece', 'params': {'id': request['id'], 'text': 'x' * 999}})",
    ],
    ids=["one line", "an answer", "pieces"],
)
async def test_a_program_that_writes_too_much_is_killed(reach_program, line):
    code = f"for request, message in requests():\n    {line}\n"
    backend = await reach_program(code, TOO_MUCH, "{'streaming': True}")
    session = await backend.create_session()

    with pytest.raises(BackendSessionError, match=r"more than 0\.1 MB"):
        _ = [piece async for piece in session.send_streaming("hi")]
    await session.close()


async def test_pieces_of_a_response_are_streamed(reach_program):
    backend = await reach_program(
        """
for request, message in requests():
    for text in ("a", "b") if request["params"].get("stream") else ():
        say({"method": "piece", "params": {"id": request["id"], "text": text}})
    say({"id": request["id"], "result": {"response": "ab"}})
""",
        abilities="{'streaming': True}",
    )
    session = await backend.create_session()

    assert [piece async for piece in session.send_streaming("hi")] == ["a", "b"]
    assert (await session.send("hi")).response == "ab"
    await session.close()


async def test_messages_that_were_said_without_the_agent_come_with_the_next_one(reach_program):
    backend = await reach_program(
        """
for request, message in requests():
    said = [one["content"] for one in request["params"].get("messages", [])]
    say({"id": request["id"], "result": " ".join(said) or "nothing"})
""",
        abilities="{'history': True}",
    )
    session = await backend.create_session()
    await session.send("one")

    session.remember([{"role": "assistant", "content": "two"}])

    assert [(await session.send("three")).response for _ in "12"] == ["two", "nothing"]
    await session.close()


async def test_the_first_message_opens_the_conversation_where_the_process_can(reach_program):
    backend = await reach_program(
        """
from itertools import count
numbers = count()
for request, message in requests():
    opening = request["params"].get("open")
    if message == "fail":
        say({"id": request["id"], "error": {"code": -32000, "message": "as told"}})
    else:
        say({"id": request["id"], "result": f"{next(numbers)} {opening}"})
""",
        abilities="{'history': True, 'opens_with_send': True}",
    )
    earlier = [{"role": "user", "content": "earlier"}]
    session = await backend.create_session(earlier)

    with pytest.raises(BackendSessionError, match="as told"):
        await session.send("fail")
    responses = [(await session.send("hi")).response for _ in "12"]

    assert responses == [f"0 {{'messages': {earlier}}}", "1 None"]
    await session.close()


async def test_a_conversation_that_failed_goes_on_where_it_was(reach):
    backend = await reach(
        """
def agent(message, context):
    if message == "fail":
        raise ValueError("as told")
    return " ".join(one["content"] for one in context) or "nothing"
"""
    )
    session = await backend.create_session([{"role": "user", "content": "earlier"}])

    with pytest.raises(BackendSessionError, match="as told"):
        await session.send("fail")
    responses = [(await session.send(message)).response for message in ("one", "two")]

    assert responses == ["earlier", "earlier one earlier"]
    await session.close()


async def test_the_end_of_a_conversation_is_not_waited_for_if_it_releases_nothing(reach_program):
    backend = await reach_program(
        """
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "initialize":
        say({"id": request["id"], "result": {"protocol": 1, **ABILITIES}})
    elif request["method"] != "close":
        say({"id": request["id"], "result": {"response": "hi"}})
""",
        abilities="{'closes': False}",
    )

    for _ in range(20):
        assert (await backend.invoke_once("hi")).response == "hi"


# The end


async def test_nothing_is_left_after_the_end_and_agents_are_closed(reach, tmp_path):
    backend = await reach(
        NOTES_PID
        + """
import atexit, subprocess
def note(text):
    with open("closed", "a") as file:
        print(text, file=file)
atexit.register(note, "at exit")
child = subprocess.Popen(["sleep", "600"])
with open("pids", "a") as file:
    print(child.pid, file=file)
class Bot:
    def __call__(self, message):
        return message
    async def aclose(self):
        note("closed")
agent = Bot()
"""
    )
    await backend.invoke_once("hi")

    await backend.teardown()

    assert (tmp_path / "closed").read_text().split("\n") == ["closed", "at exit", ""]
    await until_gone(*pids(tmp_path))


async def test_an_agent_that_does_not_end_is_killed(reach_program, tmp_path):
    backend = await reach_program(NOTES_PID + "list(requests())\nwhile True: time.sleep(600)\n")

    await backend.teardown()

    assert not any(map(is_running, pids(tmp_path)))


async def test_the_process_ends_with_its_stdin(tmp_path):
    (tmp_path / "bot.py").write_text("def agent(message): return message\n")
    process = await asyncio.create_subprocess_exec(
        *command_of(ProcessBackendConfig(type="process", target="bot:agent"), tmp_path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )

    out, _ = await process.communicate(b"")

    assert (process.returncode, out) == (0, b"")


# Environments


def imported_modules(file):
    """Names of the modules that a file imports, but for types and what it can do without."""
    tree = ast.parse(file.read_text(), feature_version=(3, 9))
    optional = {"TYPE_CHECKING", "sys.version_info >= (3, 10)", "suppress(ImportError)"}
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in optional:
            node.body = []
        if isinstance(node, ast.With) and ast.unparse(node.items[0]) in optional:
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_the_worker_needs_only_the_standard_library_and_python_3_9():
    root = Path(worker.__file__).parents[4]
    waiting, files = ["holodeck.lib.backends.python.worker"], [Path(process_guard.__file__)]
    others = set()
    while waiting:
        stem = root.joinpath(*waiting.pop().split("."))
        file = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
        if file in files:
            continue
        files.append(file)
        names = [*imported_modules(file)]
        waiting += [name for name in names if name.startswith("holodeck")]
        waiting += [name.rpartition(".")[0] for name in waiting if "." in name]
        others.update(name.partition(".")[0] for name in names)

    assert others - {"holodeck"} <= sys.stdlib_module_names
    assert len(files) > 5
    for file in files:
        text = file.read_text()
        assert " | " not in text or "from __future__ import annotations" in text, file


def test_the_adapters_of_frameworks_are_written_for_python_3_10():
    for file in Path(frameworks.__file__).parent.rglob("*.py"):
        ast.parse(file.read_text(), feature_version=(3, 10))


async def test_an_environment_without_holodeck_suffices(reach, tmp_path):
    venv.create(tmp_path / "env", symlinks=True)
    code = """
import sys
try:
    import pydantic
except ImportError:
    pydantic = None
class agent:
    async def run(self, message, context):
        return f"{message} {pydantic} {sys.prefix}"
"""

    backend = await reach(code, python="env/bin/python")

    assert (await backend.invoke_once("hi")).response == f"hi None {tmp_path / 'env'}"
