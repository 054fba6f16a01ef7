"""The processes of agents end with holodeck, however it ends, and their crashes cost no run."""

import json
import os
import signal
import sys

import pytest
import yaml

from support.cli import run_cli, start_cli
from support.processes import descendants, until, until_gone
from support.workers import HAS_WORKERS

CASE = {"name": "waits", "input": "hang", "evaluations": [{"metric": "contains", "value": "x"}]}
HANGS = {
    "a function": """
import subprocess, time
def agent(message):
    subprocess.Popen(["sleep", "600"])
    open("hangs", "w").close()
    time.sleep(600)
""",
    "an async function that blocks": """
import subprocess, time
async def agent(message):
    subprocess.Popen(["sleep", "600"])
    open("hangs", "w").close()
    time.sleep(600)
""",
    "a program that ignores everything": """
import json, signal, subprocess, sys, time
for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(one, signal.SIG_IGN)
sys.stdin.readline()
print(json.dumps({"id": 1, "result": {"protocol": 1}}), flush=True)
sys.stdin.readline()
subprocess.Popen(["sleep", "600"])
open("hangs", "w").close()
time.sleep(600)
""",
}
PROCESSES = 6 if HAS_WORKERS else 4
"""The guard, two processes of the agent, and what one of them has started; with workers also the
worker of the only case, and that worker's guard."""


def write_agent(folder, code, cases, **backend):
    (folder / "bot.py").write_text(code)
    agent = {"name": "bot", "backend": {"type": "process", **backend}, "test_cases": cases}
    (folder / "agent.yaml").write_text(yaml.safe_dump(agent))


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name
)
@pytest.mark.parametrize("agent", HANGS)
async def test_no_process_of_an_agent_that_hangs_outlives_holodeck(tmp_path, agent, how):
    is_program = "program" in agent
    config = {"command": [sys.executable, "bot.py"]} if is_program else {"target": "bot:agent"}
    write_agent(tmp_path, HANGS[agent], [CASE], workers=2, **config)

    with start_cli("test", cwd=tmp_path) as run:
        await until((tmp_path / "hangs").exists)
        processes = descendants(run.pid)
        os.kill(run.pid, how)
        code = run.finish().code

    assert len(processes) == PROCESSES
    assert code == {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}[how]
    await until_gone(*processes)


CRASHES = {
    "exit": ("os._exit(0)", "the agent's process ended with exit code 0"),
    "signal": ("os.kill(os.getpid(), signal.SIGKILL)", "the agent's process was killed by SIGKILL"),
    "memory": ("ctypes.string_at(0)", "the agent's process was killed by SIGSEGV"),
    "another program": (
        "os.execvp('true', ['true'])",
        "the agent's process ended with exit code 0",
    ),
}


@pytest.mark.parametrize(("way", "said"), CRASHES.values(), ids=CRASHES)
def test_a_crash_is_one_error_row_and_the_other_cases_run(tmp_path, way, said):
    code = f"""
import ctypes, os, signal, sys
def agent(message):
    if message == "crash":
        print("last words", file=sys.stderr)
        {way}
    return "OK " + message
"""
    passes = {"evaluations": [{"metric": "contains", "value": "OK"}]}
    messages = ["one", "crash", "two", "three"]
    cases = [{"name": one, "input": one, **passes} for one in messages]
    write_agent(tmp_path, code, cases, target="bot:agent")

    ran = run_cli("test", "-o", "report.json", cwd=tmp_path)

    report = json.loads((tmp_path / "report.json").read_text())
    outcomes = [one["outcome"] for one in report["results"]]
    assert (ran.code, outcomes) == (3, ["passed", "agent_error", "passed", "passed"]), ran.stdout
    [error] = report["results"][1]["errors"]
    assert error == f"{said}; the end of its stderr: last words"


def test_values_of_env_and_of_stderr_are_masked(tmp_path):
    code = """
import os, sys
def agent(message):
    print("the key is", os.environ["MY_KEY"], file=sys.stderr)
    os._exit(1)
"""
    write_agent(tmp_path, code, [CASE], target="bot:agent", env={"MY_KEY": "hunter2-hunter2"})

    ran = run_cli("test", "-o", "report.json", cwd=tmp_path)

    assert "the key is" in ran.stdout
    assert "hunter2" not in ran.stdout + ran.stderr + (tmp_path / "report.json").read_text()
