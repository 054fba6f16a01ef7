"""A grader that hangs, or breaks the interpreter it runs in, is one error row."""

import asyncio
import json
import os
import signal

import pytest

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import Observation
from holodeck.lib.evaluators.build import build_evaluator
from holodeck.lib.evaluators.grader_process import GraderProcess
from holodeck.lib.user_code import code_root as user_code
from holodeck.models.metrics.text import CodeMetric
from support.checks import assert_plain
from support.cli import start_cli
from support.processes import descendants, until, until_gone

HOLD = "ctypes.PyDLL(None).sleep(600)"
"""Holds the interpreter, as endless work in C does, without using the processor."""
FINE = "def fine(case):\n    assert case.response\n"
HANGS = {
    "a regular expression": "import re\ndef bad(case):\n    re.match('(a+)+$', 'a' * 60 + 'b')\n",
    "a compiled one": (
        "import re\nX = re.compile('(a+)+$')\ndef bad(case):\n    X.match('a' * 60 + 'b')\n"
    ),
    "a call in C": f"import ctypes\ndef bad(case):\n    {HOLD}\n",
    "eval": "def bad(case):\n    eval('9**9**9')\n",
    "a loop": "def bad(case):\n    while True: pass\n",
    "a coroutine that sleeps": "import time\nasync def bad(case):\n    time.sleep(10**6)\n",
    "a coroutine that loops": "async def bad(case):\n    while True: pass\n",
    "a coroutine that cannot be cancelled": (
        "import asyncio\nasync def bad(case):\n    while True:\n"
        "        try:\n            await asyncio.sleep(10**6)\n        except BaseException: pass\n"
    ),
    "text of its result": (
        "class Text:\n    def __str__(self):\n        while True: pass\n"
        "def bad(case):\n    return {'score': 1, 'reason': Text()}\n"
    ),
}  # fmt: skip
BREAKS = {
    "stops the event loop": (
        "async def bad(case):\n    asyncio.get_event_loop().stop()\n    return 1\n",
        "stop() of the event loop would end the run",
    ),
    "raises Ctrl-C": ("async def bad(case):\n    raise KeyboardInterrupt\n", "KeyboardInterrupt"),
    "cancels its task": (
        "async def bad(case):\n    asyncio.current_task().cancel()\n    await pause()\n",
        "CancelledError",
    ),
    "cancels all tasks": (
        "async def bad(case):\n    [a.cancel() for a in asyncio.all_tasks()]\n    await pause()",
        "CancelledError",
    ),
    "replaces what is built in": (
        "import builtins\ndef bad(case):\n    builtins.isinstance = builtins.len = None\n",
        "the grader 'hostile:bad' in case 'soup' ended its process: ",
    ),
    "returns code to be run here": (
        "def bad(case):\n    return Score(1, True, 'x', raw_score=1.0, raw_scale=Text('y'))\n",
        "holds more than text and numbers",
    ),
}
IMPORTS = (
    "import asyncio, os\nfrom holodeck.lib.evaluators.base import Score\n"
    "async def pause(): await asyncio.sleep(0)\n"
    "class Text(str):\n    def __reduce__(self): return os._exit, (0,)\n"
)


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
def evaluator(tmp_path, process):
    """Returns the evaluator of `bad` in a module of its own, or of another function."""

    def make(source, name="bad", **keys):
        module = f"hostile{len(list(tmp_path.iterdir()))}"
        (tmp_path / f"{module}.py").write_text(source)
        metric = CodeMetric(type="code", grader=f"{module}:{name}", **keys)
        return build_evaluator(metric, tmp_path, graders=lambda: process)

    return make


def write_project(folder, source, **keys):
    folder.write("hostile.py", source)
    folder.write("graders.py", FINE)
    folder.write("waiter.py", "def answer(text):\n    return 'Please.'\n")
    fine = [{"type": "code", "grader": "graders:fine"}]
    bad = [{"type": "code", "grader": "hostile:bad", **keys}]
    folder.write_agent(
        model=None,
        instructions=None,
        backend="waiter:answer",
        test_cases=[
            {"name": "before", "input": "a", "evaluations": fine},
            {"name": "soup", "input": "b", "evaluations": bad},
            {"name": "after", "input": "c", "evaluations": fine},
        ],
    )


@pytest.mark.parametrize("source", HANGS.values(), ids=HANGS)
async def test_a_grader_that_hangs_ends_at_its_limit_and_others_go_on(source, evaluator):
    bad, fine = evaluator(source, timeout_ms=300), evaluator(FINE, "fine")

    before = await fine.evaluate_observation(Observation("hi"))
    with pytest.raises(EvaluationError, match="bad timed out after 0"):
        await bad.evaluate_observation(Observation("hi"))
    after = await fine.evaluate_observation(Observation("hi"))

    assert (before.passed, after.passed) == (True, True)


@pytest.mark.parametrize(("source", "reason"), BREAKS.values(), ids=BREAKS)
def test_a_grader_that_breaks_its_interpreter_is_one_error_row(agent_dir, source, reason):
    write_project(agent_dir, IMPORTS + source)

    ran = agent_dir.run("test", "-o", "r.json")

    assert_plain(ran)
    assert ran.code == 4
    before, soup, after = json.loads((agent_dir.path / "r.json").read_text())["results"]
    assert (before["outcome"], after["outcome"]) == ("passed", "passed")
    assert reason in soup["metric_results"][0]["error"]


async def test_what_a_grader_hangs_does_not_make_others_late(evaluator, tmp_path):
    """They have a shorter limit than the one that keeps them from running."""
    started = tmp_path / "started"
    bad = evaluator(
        f"import ctypes\ndef bad(case):\n    open({str(started)!r}, 'w').close()\n    {HOLD}\n",
        timeout_ms=20_000,
    )
    slow = evaluator("import time\ndef bad(case):\n    time.sleep(0.01)\n    return 1\n")
    await slow.evaluate_observation(Observation("hi"))

    hanging = asyncio.create_task(bad.evaluate_observation(Observation("hi")))
    await until(started.exists)
    scores = [slow.evaluate_observation(Observation("hi")) for _ in range(3)]

    assert [score.passed for score in await asyncio.gather(*scores)] == [True] * 3
    assert not hanging.done()
    hanging.cancel()
    await asyncio.wait([hanging])


async def test_a_thread_that_a_grader_leaves_does_not_make_the_next_one_late(evaluator):
    left = evaluator(
        f"import ctypes, threading, time\ndef hog():\n    time.sleep(0.2)\n    {HOLD}\n"
        "def bad(case):\n    threading.Thread(target=hog, daemon=True).start()\n    return 1\n"
    )
    fine, loaded = evaluator(FINE, "fine"), evaluator(FINE, "fine", timeout_ms=3000)
    await loaded.evaluate_observation(Observation("hi"))

    assert (await left.evaluate_observation(Observation("hi"))).passed
    await asyncio.sleep(0.4)

    assert (await loaded.evaluate_observation(Observation("hi"))).passed
    assert (await fine.evaluate_observation(Observation("hi"))).passed


async def test_a_thread_that_the_last_grader_leaves_does_not_keep_the_run_from_ending(agent_dir):
    write_project(agent_dir, FINE)
    agent_dir.write(
        "graders.py",
        f"import ctypes, threading, time\ndef hog():\n    time.sleep(0.1)\n    {HOLD}\n"
        "def fine(case):\n    if case.case_name == 'after':\n"
        "        threading.Thread(target=hog, daemon=True).start()\n    return 1\n",
    )
    agent_dir.write("hostile.py", "def bad(case):\n    return 1\n")

    assert agent_dir.run("test").code == 0


async def test_a_process_ends_after_the_last_call_that_one_which_was_late_leaves(evaluator):
    late = evaluator(
        "import asyncio\nasync def bad(case):\n    await asyncio.sleep(10**6)\n", timeout_ms=300
    )
    slow = evaluator(
        "import asyncio, os\nasync def bad(case):\n    await asyncio.sleep(2)\n"
        "    return {'score': 1, 'reason': str(os.getpid())}\n"
    )
    await slow.prepare()
    before = asyncio.create_task(slow.evaluate_observation(Observation("hi")))
    with pytest.raises(EvaluationError, match="bad timed out after 0"):
        await late.evaluate_observation(Observation("hi"))

    await until_gone(int((await before).reason))


async def test_what_a_grader_replaces_in_a_library_does_not_reach_the_run(evaluator):
    bad = evaluator(
        "import json, pickle, marshal\n"
        "def bad(case):\n"
        "    json.dumps = json.loads = pickle.dumps = marshal.dumps = marshal.load = None\n"
        "    return 1\n"
    )

    for _ in range(2):
        assert (await bad.evaluate_observation(Observation("hi"))).passed
    assert json.loads(json.dumps([1])) == [1]


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
async def test_no_signal_waits_for_a_grader_that_holds_the_interpreter(agent_dir, sent, code):
    source = (
        "import ctypes, subprocess\ndef bad(case):\n    subprocess.Popen(['sleep', '600'])\n"
        f"    open('started', 'w').close()\n    {HOLD}\n"
    )
    write_project(agent_dir, source, timeout_ms=600_000)
    with start_cli("test", cwd=agent_dir.path) as run:
        await until((agent_dir.path / "started").exists)
        started = descendants(run.pid)
        os.killpg(run.pid, sent)

        ran = await asyncio.to_thread(run.finish)

    assert ran.code == code
    assert len(started) >= 3  # the graders' process, what its grader started, and the guard
    await until_gone(*started)
    agent_dir.write("hostile.py", "def bad(case):\n    return 1\n")
    assert agent_dir.run("test", "--resume", "--force").code == 0


async def test_a_grader_in_this_process_that_cancels_its_task_does_not_cancel_the_case(tmp_path):
    (tmp_path / "own.py").write_text(
        "import asyncio\nasync def bad(case):\n    asyncio.current_task().cancel()\n"
        "    await asyncio.sleep(0)\n"
    )
    bad = build_evaluator(CodeMetric(type="code", grader="own:bad"), tmp_path)

    with pytest.raises(asyncio.CancelledError):
        await bad.evaluate_observation(Observation("hi"))

    assert asyncio.current_task().cancelling() == 0


def test_an_agent_that_cancels_its_task_is_an_error_of_its_case(agent_dir):
    agent_dir.write(
        "waiter.py",
        "import asyncio\nasync def answer(text):\n    if text == 'b':\n"
        "        asyncio.current_task().cancel()\n        await asyncio.sleep(0)\n"
        "    return 'Please.'\n",
    )
    agent_dir.write_agent(
        model=None,
        instructions=None,
        backend="waiter:answer",
        test_cases=[{"name": name, "input": name, "ground_truth": "Please"} for name in "abc"],
        evaluations={"metrics": [{"metric": "contains"}]},
    )

    ran = agent_dir.run("test", "-j", "1", "-o", "r.json")

    assert ran.code == 3
    results = json.loads((agent_dir.path / "r.json").read_text())["results"]
    assert [one["outcome"] for one in results] == ["passed", "agent_error", "passed"]
