"""Code of an agent or a grader that ends the process ends no run without a verdict."""

import json
import signal

import pytest
import yaml

from support.cli import run_cli, start_cli
from support.own_pytest import run_pytest
from support.workers import only_in_one_process

IMPORTS = "import asyncio, atexit, multiprocessing, os, posix, signal, sys, threading\n"
GREETS = "def answer(message):\n    return 'hello'\n"
LOOKS = {"metric": "contains", "value": "hello"}

WAYS = {
    "os._exit": "os._exit(0)",
    "the posix module": "posix._exit(0)",
    "another program": "os.execvp('true', ['true'])",
    "sys.exit": "sys.exit(0)",
    "SystemExit": "raise SystemExit",
    "an unusual exception": "raise BaseException('over')",
}
AGENTS = {
    "function": "def answer(message):\n    {way}\n    return 'hello'\n",
    "async": "async def answer(message):\n    {way}\n    return 'hello'\n",
    "class": (
        "class answer:\n    def __init__(self):\n        {way}\n"
        "    def __call__(self, message):\n        return 'hello'\n"
    ),
}


@pytest.fixture
def folder(tmp_path):
    """Writes an agent with a case and its files; gives their folder."""
    where = tmp_path / "agent"
    where.mkdir()

    def write(agent=GREETS, *, evaluations=(LOOKS,), files=None, **case):
        asked = {"name": "greets", "evaluations": list(evaluations), **case}
        if "script" not in case:
            asked["input"] = "hi"
        written = {"name": "greeter", "backend": "bot:answer", "test_cases": [asked]}
        (where / "agent.yaml").write_text(yaml.safe_dump(written))
        for name, text in {"bot.py": agent, **(files or {})}.items():
            (where / name).write_text(IMPORTS + text)
        return where

    return write


def run_test(where, *args):
    """Run the cases; the exit code, what was shown, and the report."""
    ran = run_cli("test", "-o", "report.json", *args, cwd=where)
    report = where / "report.json"
    return ran.code, ran.stdout + ran.stderr, report.is_file() and json.loads(report.read_text())


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_an_agent_that_ends_the_process_is_exit_3_with_a_report(folder, kind, way):
    code, shown, report = run_test(folder(AGENTS[kind].format(way=way)))

    assert (code, bool(report)) == (3, True), shown
    assert not any(one["passed"] for one in report["results"])


def test_an_agent_that_calls_os_exit_is_told_with_file_and_line(folder):
    code, shown, report = run_test(folder(AGENTS["async"].format(way="os._exit(0)")))

    assert code == 3
    assert report["results"][0]["outcome"] == "agent_error"
    assert "os._exit(0) at bot.py:3 would end the run; raise an error instead" in shown


@pytest.mark.parametrize("start", ["asyncio.create_task(end())", "THREAD"])
def test_a_task_or_thread_of_an_agent_that_calls_os_exit_is_exit_3_with_a_report(folder, start):
    thread = "thread = threading.Thread(target=os._exit, args=(0,)); thread.start(); thread.join()"
    agent = (
        "async def end():\n    os._exit(0)\n"
        f"async def answer(message):\n    kept = {start}\n    await asyncio.sleep(0)\n"
        "    await asyncio.sleep(0)\n    return 'hello'\n"
    ).replace("kept = THREAD", thread)

    code, shown, report = run_test(folder(agent))

    assert (code, bool(report)) == (3, True), shown
    assert "os._exit(0) at " in shown


def test_an_agent_that_calls_os_exit_on_import_is_a_configuration_error(folder):
    code, shown, _ = run_test(folder("os._exit(0)\n" + GREETS))

    assert code == 2
    assert "bot.py:2: cannot be imported: ProcessExit: os._exit(0)" in shown


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_grader_that_ends_the_process_is_exit_4_with_a_report(folder, way):
    graders = f"def check(observation):\n    {way}\n    return True\n"
    where = folder(
        evaluations=[{"type": "code", "grader": "graders:check"}], files={"graders.py": graders}
    )

    code, shown, report = run_test(where)

    assert (code, bool(report)) == (4, True), shown


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_step_of_a_script_that_ends_the_process_is_an_error_with_a_report(folder, way):
    steps = f"def check(state):\n    {way}\n"
    script = [{"user": "hi"}, "agent", {"call": "steps:check"}, {"succeed": "fine"}]
    where = folder(evaluations=(), script=script, files={"steps.py": steps})

    code, shown, report = run_test(where)

    assert (code, bool(report)) == (4, True), shown


def test_a_grader_that_ends_the_process_is_an_error_when_a_record_is_scored(folder):
    graders = "def check(observation):\n    return True\n"
    where = folder(
        evaluations=[{"type": "code", "grader": "graders:check"}], files={"graders.py": graders}
    )
    first = run_cli("test", cwd=where)
    (where / "graders.py").write_text("import os\ndef check(observation):\n    os._exit(0)\n")

    ran = run_cli("score", "-o", "again.json", cwd=where)

    assert (first.code, ran.code) == (0, 4), ran.stderr
    assert (where / "again.json").is_file()


@pytest.mark.parametrize("way", ["os._exit(0)", "sys.exit(0)", "os.execvp('true', ['true'])"])
def test_an_exit_handler_does_not_turn_a_failed_run_green(folder, way):
    bye = f"@atexit.register\ndef end():\n    {way}\n"
    where = folder(bye + GREETS.replace("hello", "no"))
    with start_cli("test", cwd=where, from_nothing=True) as run:
        assert run.finish().code == 1


@only_in_one_process("it ends its worker, as in the tests of workers")
@pytest.mark.parametrize(
    ("way", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.abort()", -signal.SIGABRT),
        ("signal.raise_signal(signal.SIGALRM)", -signal.SIGALRM),
    ],
)
def test_an_agent_that_kills_the_process_is_not_exit_0(folder, way, code):
    with start_cli("test", cwd=folder(AGENTS["function"].format(way=way))) as run:
        assert run.finish().code == code


FORKS = """
    child = os.fork()
    if not child:
        {way}
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""
PROCESS = """
    process = multiprocessing.get_context("fork").Process(target=sys.exit, args=(7,))
    process.start()
    process.join()
    code = process.exitcode
"""
WORK = {
    "fork": FORKS.format(way="os._exit(7)"),
    "another program": FORKS.format(way="os.execvp('sh', ['sh', '-c', 'exit 7'])"),
    "multiprocessing": PROCESS,
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_the_children_of_an_agent_end_as_they_always_do(folder, work):
    agent = f"def answer(message):{work}    return f'hello {{code}}'\n"
    where = folder(agent, evaluations=[{"metric": "contains", "value": "hello 7"}])

    assert run_test(where)[0] == 0


def test_an_agent_file_in_pytest_whose_agent_calls_os_exit_fails_its_test(folder):
    where = folder(AGENTS["function"].format(way="os._exit(0)"))

    shown = run_pytest(where, "agent.yaml")

    assert "1 failed" in shown
    assert "os._exit(0) at bot.py:3" in shown


SUITE = """
import os
from holodeck import scenario
from holodeck.suite import Runner, Scenario, Suite

class Ends:
    def run(self, input, context=None):
        os._exit(0)

class Adapter(scenario.AgentAdapter):
    async def call(self, input):
        os._exit(0)

def test_a_suite():
    suite = Suite(name="s", scenarios=[Scenario(name="a", input="x")])
    [result] = Runner(Ends()).run_suite(suite).scenario_results
    assert result.passed, result.error

async def played():
    steps = [scenario.agent(), scenario.succeed("fine")]
    return await scenario.run("case", "", [Adapter()], script=steps)

def test_a_scenario():
    import asyncio
    result = asyncio.run(played())
    assert result.success, result.reasoning
"""


def test_suites_and_scenarios_in_pytest_whose_agent_calls_os_exit_fail(tmp_path):
    (tmp_path / "test_own.py").write_text(SUITE)

    shown = run_pytest(tmp_path, "test_own.py")

    assert "2 failed" in shown
    assert shown.count("would end the run") >= 2


KEEPS_A_LOG = """
import time

class Agent:
    def __init__(self):
        self.tools = {"answer": self}  # a cycle, which only garbage collection ends
        self.log = open("log.txt", "a")

    def __call__(self, message):
        time.sleep(0.2)  # until Python collects garbage again
        self.log.write(f"said {message}\\n")
        return "hello"

def leave():
    with open("left.txt", "a") as file:
        file.write("left\\n")

atexit.register(leave)
answer = Agent()
"""


@pytest.mark.parametrize("args", [(), ("--workers", "2")], ids=["one process", "workers"])
def test_what_the_agent_leaves_to_the_end_of_python_is_not_lost(folder, args):
    where = folder(KEEPS_A_LOG)
    with start_cli("test", "agent.yaml", *args, cwd=where, from_nothing=True) as run:
        ran = run.finish()
    assert ran.code == 0, ran.stderr
    assert (where / "log.txt").read_text() == "said hi\n"
    assert set((where / "left.txt").read_text().split()) == {"left"}
