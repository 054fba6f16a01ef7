"""A person at a real terminal speaks for the user."""

import json
import os
import signal

import pytest

from fakes import start_in_pty, start_python_in_pty
from support.nursery import PYTESTS

PARTIES = """
import asyncio, json, sys, termios
from holodeck import scenario


class Agent(scenario.AgentAdapter):
    async def call(self, input):
        return "heard " + input.last_new_user_message_str()


class User(scenario.AgentAdapter):
    role = scenario.AgentRole.USER

    async def call(self, input):
        return "simulated"


class Judge(scenario.AgentAdapter):
    role = scenario.AgentRole.JUDGE
    criteria = ["is kind"]

    async def call(self, input):
        if not input.judgment_request:
            return []
        return scenario.ScenarioResult(success=True, messages=[], passed_criteria=["is kind"])
"""
SCRIPT = (
    PARTIES
    + """
before = termios.tcgetattr(0)
try:
    result = asyncio.run(scenario.run("a chat", "…", [Agent(), User(), Judge()], debug=True,
                                      timeout=60, call_timeout=60))
finally:
    print("AS BEFORE", termios.tcgetattr(0) == before)
print("SAID", json.dumps([one["content"] for one in result.messages], ensure_ascii=False))
print("PASSED BY", result.passed_criteria)
"""
)
TESTS = (
    PARTIES
    + """
def play(name, *agents):
    return asyncio.run(scenario.run(name, "…", [Agent(), *agents])).success

def test_one():
    assert play("one", User())

def test_two():
    assert play("two")

def test_three():
    assert play("three", User())
"""
)
PYTEST = ("-p", "no:deepeval", "-p", "no:asyncio", "-p", "no:cacheprovider",
          "-p", "no:holodeck", "-p", "holodeck.pytest_plugin")  # fmt: skip
ASKED = "User> "
BOT = """
class Bot:
    def run(self, message):
        return {"response": f"heard {message}", "tool_calls": [
            {"name": "look", "arguments": {"for": message}, "result": "nothing"}]}
"""
VERDICT = {"c1": {"reasoning": "it looked", "status": "passed"}, "decision": "verdict"}


@pytest.fixture
def talk(tmp_path):
    """A folder with a program and tests."""
    (tmp_path / "talk.py").write_text(SCRIPT)
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


def start_talk(folder):
    return start_python_in_pty("talk.py", cwd=folder, cols=100)


def start_pytest(folder, *args):
    return start_in_pty(*PYTEST, *args, cwd=folder, cols=100, program=PYTESTS)


def type_each(run, *lines):
    for times, line in enumerate(lines, 1):
        run.read_until(ASKED, times=times)
        run.enter(line)


def test_enter_text_commands_and_the_judge(talk):
    with start_talk(talk) as run:
        type_each(run, "\n", "Größe 7\n", "/jugde\n", "/judge\n")
        ran = run.finish()

    assert ran.code == 0
    [told] = [line for line in ran.screen.splitlines() if line.startswith("SAID")]
    assert json.loads(told.removeprefix("SAID")) == [
        "simulated", "heard simulated", "Größe 7", "heard Größe 7",
    ]  # fmt: skip
    assert "PASSED BY ['is kind']" in ran.screen
    assert "unknown command /jugde; the commands are /judge" in ran.screen
    # Prompts are gone; what is left reads like any conversation.
    assert ASKED.strip() not in ran.screen
    assert "User: Größe 7\nAgent: heard Größe 7\n" in ran.screen
    assert "AS BEFORE True" in ran.screen


@pytest.mark.parametrize("how", ["/quit\n", "\x04", "Ctrl-C"], ids=["quit", "Ctrl-D", "Ctrl-C"])
def test_who_has_enough_interrupts_the_program_and_gets_the_terminal_back(talk, how):
    with start_talk(talk) as run:
        run.read_until(ASKED)
        if how == "Ctrl-C":
            os.killpg(run.process.pid, signal.SIGINT)
        else:
            run.enter(how)
        ran = run.finish()

    assert ran.code == -signal.SIGINT
    assert "KeyboardInterrupt" in ran.screen
    assert "AS BEFORE True" in ran.screen


def test_pytest_debugs_every_scenario_though_it_captures(talk):
    with start_pytest(talk, "test_it.py", "--holodeck-debug") as run:
        type_each(run, "mine\n", "/pass\n", "all mine\n", "/fail too slow\n", "/quit\n")
        ran = run.finish()

    assert ran.code == 2
    assert "Agent: heard mine" in ran.screen
    assert "Agent: heard all mine" in ran.screen
    assert "FAILED: two" in ran.screen
    assert "1 failed, 1 passed" in ran.screen


def test_pytest_debugs_only_one_test_at_a_time(talk):
    with start_pytest(talk, "test_it.py", "--holodeck-debug", "-n", "2") as run:
        ran = run.finish()

    assert ran.code == 4
    assert "--holodeck-debug runs one test at a time; remove -n" in ran.screen


@pytest.fixture
def simulated(agent_dir):
    """A folder with a simulated case, whose judge and user the server plays."""
    agent_dir.write("bot.py", BOT)
    agent_dir.write_agent(
        backend="bot:Bot",
        model=None,
        instructions=None,
        evaluations={"model": agent_dir.model()},
        execution={"parallel_test_cases": 4},
        test_cases=[
            {
                "name": "hungry",
                "simulate": {"situation": "wants a recipe"},
                "criteria": ["Looks before it answers"],
                "min_turns": 3,
            }
        ],
    )
    line = json.dumps({"message": "dinner?", "done": False})
    agent_dir.server.when("what the user writes next", line)
    agent_dir.server.when("# Criteria", json.dumps(VERDICT))
    return agent_dir


def test_the_command_lets_a_person_speak_too(simulated):
    args = ("test", "--debug", "-o", "r.json")
    with start_in_pty(*args, cwd=simulated.path, cols=100) as run:
        type_each(run, "\n", "no meat\n", "/judge\n")
        ran = run.finish()

    assert ran.code == 0
    assert 'Agent calls look: {"for": "no meat"}' in ran.screen
    assert "Judge, passed: Looks before it answers: it looked" in ran.screen
    [result] = json.loads((simulated.path / "r.json").read_text())["results"]
    assert [turn["input"] for turn in result["turns"]] == ["dinner?", "no meat"]


def test_pytest_debugs_the_cases_of_an_agent(simulated):
    with start_pytest(simulated.path, "agent.yaml", "--holodeck-debug") as run:
        type_each(run, "no meat\n", "/fail too dull\n")
        ran = run.finish()

    assert ran.code == 1
    assert "Agent: heard no meat" in ran.screen
    assert "too dull" in ran.screen


def test_quitting_the_command_is_an_interruption(simulated):
    with start_in_pty("test", "--debug", cwd=simulated.path) as run:
        type_each(run, "\n", "/quit\n")
        ran = run.finish()

    assert ran.code == 130


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], "--debug needs a terminal, and stdin is not one"),
        (["--parallel", "2"], "--debug runs one case at a time; remove --parallel-test-cases"),
        (["--list"], "--list runs nothing; remove --debug"),
    ],
    ids=["no terminal", "parallel", "list"],
)
def test_the_command_refuses_to_debug_where_nobody_can_be_asked(simulated, args, told):
    ran = simulated.run("test", "--debug", *args)

    assert ran.code == 2
    assert told in " ".join(ran.stderr.split())
    assert simulated.server.requests == []


def test_a_run_that_would_never_ask_is_refused(simulated):
    simulated.write_agent(backend="bot:Bot", model=None, instructions=None)
    with start_in_pty("test", "--debug", cwd=simulated.path, cols=100) as run:
        ran = run.finish()

    assert ran.code == 2
    assert "none of the selected cases has a simulated user" in ran.screen


def test_verbose_shows_the_conversation_on_stderr(simulated):
    ran = simulated.run("test", "-v")

    assert ran.stderr.count("User: dinner?") == 3
    assert 'Agent calls look: {"for": "dinner?"}' in ran.stderr
    assert "User: dinner?" not in simulated.run("test").stderr
