"""A grader that ends the interpreter is one error row; graders that cannot do so stay in it."""

import json
import os
from pathlib import Path

import pytest

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import Observation
from holodeck.lib.evaluators.build import build_evaluator
from holodeck.lib.evaluators.grader_process import GraderProcess
from holodeck.lib.user_code import code_root as user_code
from holodeck.lib.user_code.code_root import import_file
from holodeck.models.metrics.text import CodeMetric
from holodeck.models.results.evidence import Unknown
from holodeck.models.test_result import ToolInvocation
from support.checks import assert_plain

GRADERS = """
import ctypes, os, signal, threading

CALLS = []

def crashes(case):
    ctypes.string_at(0)

def leaves(case):
    ctypes.CDLL(None)._exit(0)

def killed(case):
    os.kill(os.getpid(), signal.SIGKILL)

def fine(case):
    print("seen by nobody's protocol")
    CALLS.append(case.response)
    return {"score": 1, "reason": f"call {len(CALLS)} in {os.getpid()}"}

async def coroutine(case):
    return {"score": 1, "reason": str(os.getpid())}

def raises(case):
    return {}["price"]

def counts(case):
    return case.tool_calls[0].args["amount"] == 3

def uses_unknown(case):
    return case.tool_calls == []
"""
HARMLESS = "import json, os.path\ndef pid(case):\n    return {'score': 1, 'reason': 'here'}\n"
WAYS = {
    "crashes": "it was killed by SIGSEGV (graders.py:7)",
    "leaves": "it ended with exit code 0",
    "killed": "it was killed by SIGKILL",
}


@pytest.fixture(autouse=True)
def _no_agents_of_other_tests(monkeypatch):
    """One that imports what it likes would keep every grader in this process."""
    monkeypatch.setattr(user_code, "_of_agents", {})


@pytest.fixture
async def process():
    process = GraderProcess()
    yield process
    await process.close()


@pytest.fixture
def grade(tmp_path, process):
    """Returns the score of a response by a grader of graders.py."""
    (tmp_path / "graders.py").write_text(GRADERS)

    async def score(name, observation=None, **keys):
        metric = CodeMetric(type="code", grader=f"graders:{name}", **keys)
        evaluator = build_evaluator(metric, tmp_path, graders=lambda: process)
        return await evaluator.evaluate_observation(observation or Observation("hi"))

    return score


@pytest.mark.parametrize("way", WAYS)
def test_a_grader_that_ends_the_interpreter_is_one_error_row(agent_dir, way):
    agent_dir.write("graders.py", GRADERS)
    agent_dir.write("waiter.py", "def answer(text):\n    return 'Please.'\n")
    fine = {"type": "code", "grader": "graders:fine"}
    agent_dir.write_agent(
        model=None,
        instructions=None,
        backend="waiter:answer",
        test_cases=[
            {"name": "before", "input": "a", "evaluations": [fine]},
            {"name": "soup", "input": "b", "evaluations": [
                {"type": "code", "grader": f"graders:{way}"}, fine]},
            {"name": "after", "input": "c", "evaluations": [fine]},
        ],
    )  # fmt: skip

    ran = agent_dir.run("test", "-o", "r.json")

    assert_plain(ran)
    assert ran.code == 4
    before, soup, after = json.loads((agent_dir.path / "r.json").read_text())["results"]
    assert (before["outcome"], after["outcome"]) == ("passed", "passed")
    crashed, beside = soup["metric_results"]
    assert beside["passed"] is True
    reason = f"the grader 'graders:{way}' in case 'soup' ended its process: {WAYS[way]}"
    assert crashed["error"] == reason
    assert reason in ran.stdout


async def test_graders_share_one_process_that_keeps_what_they_loaded(grade):
    first, second = await grade("fine"), await grade("fine")
    other = await grade("coroutine")

    pid = int(other.reason)
    assert pid != os.getpid()
    assert (first.reason, second.reason) == (f"call 1 in {pid}", f"call 2 in {pid}")


async def test_what_a_grader_raises_there_keeps_its_place(grade):
    with pytest.raises(EvaluationError, match="raises failed: KeyError: 'price'") as raised:
        await grade("raises")

    assert raised.value.raised.line == 24


async def test_a_grader_there_sees_the_tool_calls_and_that_they_are_unknown(grade):
    call = ToolInvocation(name="refund", args={"amount": 3})

    assert (await grade("counts", Observation("hi", tool_calls=(call,)))).passed
    with pytest.raises(EvaluationError, match="the agent's tool calls are unknown"):
        await grade("uses_unknown", Observation("hi", tool_calls=Unknown("tool_calls")))


async def test_a_grader_that_hangs_there_is_ended_at_its_time_limit(tmp_path, process, grade):
    (tmp_path / "hangs.py").write_text(
        "import os, signal\n"
        "def forever(case):\n"
        "    open(case.response, 'w').write(str(os.getpid()))\n"
        "    signal.sigwait([signal.SIGUSR1])\n"
    )
    note = tmp_path / "pid"
    metric = CodeMetric(type="code", grader="hangs:forever", timeout_ms=2000)
    evaluator = build_evaluator(metric, tmp_path, graders=lambda: process)

    with pytest.raises(EvaluationError, match="forever timed out after 2 s"):
        await evaluator.evaluate_observation(Observation(str(note)))

    score = await grade("fine")
    assert score.passed
    assert score.reason != f"call 1 in {note.read_text()}"


async def test_what_cannot_be_sent_to_another_process_is_graded_here(grade):
    class Local(str):
        """A class that another process cannot import."""

    score = await grade("fine", Observation(Local("hi")))

    assert score.reason == f"call 1 in {os.getpid()}"


@pytest.mark.parametrize(
    ("grader", "agent"),
    [
        ("import ctypes, shop\n" + HARMLESS, "import shop\n"),
        ("import ctypes\n" + HARMLESS, "def f():\n    from graders import pid\n"),
        ("import ctypes, importlib\nshop = importlib.import_module('shop')\n" + HARMLESS, ""),
    ],
    ids=["shares a module", "is imported by the agent", "imports what it likes"],
)
async def test_a_grader_runs_in_this_process_where_it_has_to(grader, agent, tmp_path, process):
    (tmp_path / "shop.py").write_text("ORDERS = []\n")
    (tmp_path / "graders.py").write_text(grader)
    (tmp_path / "bot.py").write_text(agent)
    import_file(Path("bot.py"), tmp_path)
    metric = CodeMetric(type="code", grader="graders:pid")

    evaluator = build_evaluator(metric, tmp_path, graders=lambda: process)

    assert not evaluator.is_isolated


async def test_a_grader_with_state_of_its_own_runs_elsewhere_beside_an_agent(tmp_path, process):
    (tmp_path / "graders.py").write_text("import ctypes\n" + HARMLESS)
    (tmp_path / "bot.py").write_text("import json\n")
    import_file(Path("bot.py"), tmp_path)
    metric = CodeMetric(type="code", grader="graders:pid")

    evaluator = build_evaluator(metric, tmp_path, graders=lambda: process)

    assert evaluator.is_isolated
