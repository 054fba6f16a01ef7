"""A run that is cancelled in the middle leaves no task, thread, child, file or connection."""

import asyncio
import gc
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.models.config import ExecutionConfig
from support.faults import WAYS, agent_for, run_cases, settings
from support.processes import descendants, until

CASES = 30
CODE = """
import asyncio

async def wait(*_):
    await asyncio.sleep(60)

async def doze(seconds: int) -> str:
    await wait()
"""
GRADED = {"evaluations": {"metrics": [{"metric": "code:wait", "threshold": 0.5}]}}
TOOLS = {"tools": [{"type": "function", "name": "doze", "file": "code.py", "function": "doze"}]}
CALLS_TOOL = Reply(None, tool_calls=[("doze", {"seconds": 60})])
SHORT = ExecutionConfig(attempt_timeout=0.1, max_retries=20)

WAITS = {
    "silence": (Reply("x", fault="hang"), {}, ExecutionConfig()),
    "half an answer": (Reply("x" * 200, fault="half_open"), {}, ExecutionConfig()),
    "a byte now and then": (Reply("x", fault="drip", drip_s=0.2), {}, ExecutionConfig()),
    "a try that took too long": (Reply("x", fault="hang"), {}, SHORT),
    "a wait that was asked for": (
        Reply(status=429, headers={"retry-after": "30"}),
        {},
        ExecutionConfig(),
    ),
    "a tool": (CALLS_TOOL, TOOLS, ExecutionConfig()),
    "a metric": (Reply("OK"), GRADED, ExecutionConfig()),
}


def open_files():
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one through which this is read
            found.append(str(one.readlink()))
    return sorted(found)


@pytest.mark.parametrize("way", WAYS)
async def test_cancelling_leaves_nothing_behind(way, tmp_path, monkeypatch, record_property):
    (tmp_path / "code.py").write_text(CODE)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with FakeOpenAI() as server:
        await run_cases(agent_for(server, tmp_path, 1, **WAYS[way]), tmp_path, settings(SHORT))

    gc.collect()
    gc.freeze()  # what the tests before have made need not be searched again for each way to wait
    for answer, fields, limits in WAITS.values():
        gc.collect()
        # What other tests forgot may begin tasks of its own while it is collected.
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
        files, threads, tasks = open_files(), set(threading.enumerate()), asyncio.all_tasks()
        processes = descendants(os.getpid())
        with FakeOpenAI(answer) as server:
            await cancelled_in_the_middle(server, tmp_path, WAYS[way] | fields, limits)
            await asyncio.to_thread(server.wait_until_idle)
        gc.collect()  # what was forgotten and not closed is an error here

        assert asyncio.all_tasks() == tasks
        assert {one for one in threading.enumerate() if one not in threads} <= pool()
        assert open_files() == files
        assert descendants(os.getpid()) == processes
        assert list(temporary.iterdir()) == []
    record_property("counted", f"left after a cancel: 0 of {len(WAITS)} ways to wait ({way})")


@pytest.mark.parametrize("way", WAYS)
async def test_cancelling_while_connections_are_made_loses_none(way, tmp_path):
    """Cancelled after ever more steps of the loop; a lost socket is a ResourceWarning, an error."""
    processes = descendants(os.getpid())
    with FakeOpenAI(Reply("x", fault="hang")) as server:
        agent = agent_for(server, tmp_path, 10, **WAYS[way])
        for steps in range(1, 41):
            executor = TestExecutor(
                str(tmp_path / "agent.yaml"),
                agent_config=agent,
                resolved_execution_config=settings(ExecutionConfig()),
            )
            run = asyncio.create_task(executor.execute_tests())
            for _ in range(steps):
                await asyncio.sleep(0)
            run.cancel()
            await asyncio.wait({run})
    gc.collect()

    assert descendants(os.getpid()) == processes


async def cancelled_in_the_middle(server, folder, fields, limits):
    agent = agent_for(server, folder, CASES, **fields)
    if "evaluations" in fields:
        cases = [case.model_copy(update={"evaluations": None}) for case in agent.test_cases]
        agent = agent.model_copy(update={"test_cases": cases}).with_base_dir(folder)
    executor = TestExecutor(
        str(folder / "agent.yaml"),
        agent_config=agent,
        resolved_execution_config=settings(limits, parallel_test_cases=CASES),
    )
    run = asyncio.create_task(executor.execute_tests())
    await server.saw(CASES)
    await asyncio.sleep(0.15)  # some way on, wherever that is
    run.cancel()
    await asyncio.wait({run})
    await executor.shutdown()
    assert run.cancelled()


def pool():
    """The threads of the loop's own pool, which tests wait in, too."""
    return {one for one in threading.enumerate() if one.name.startswith("asyncio_")}
