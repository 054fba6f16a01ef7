"""Tools at work hold up nobody: not the requests of others, and not the machine."""

import asyncio

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.lib.backends.selector import BackendSelector
from holodeck.lib.tools.base import MAX_CONCURRENT_TOOLS
from holodeck.models.config import ExecutionConfig
from support.faults import agent_for

TOOLS = '''
import threading
import time

release = threading.Event()
entered = threading.Event()
_lock = threading.Lock()
_here = 0
most = 0

def block() -> str:
    """Waits until it is let go."""
    entered.set()
    release.wait(60)
    return "released"

def let_go() -> str:
    """Lets the other one go."""
    assert entered.wait(60)
    release.set()
    return "done"

def count() -> str:
    """Counts how many are here at once."""
    global _here, most
    with _lock:
        _here += 1
        most = max(most, _here)
    time.sleep(0.01)
    with _lock:
        _here -= 1
    return str(most)
'''
NAMES = ("block", "let_go", "count")


def answer(request):
    """Calls the tools that the prompt names, then repeats what they said last."""
    if request.tool_results:
        return Reply(f"OK: {max(request.tool_results, key=len)}")
    name, _, times = request.prompt.partition(" ")
    return Reply(tool_calls=[(name, {})] * int(times or 1))


@pytest.fixture(params=[None, "chat"], ids=["Semantic Kernel", "chat"])
async def backend(request, tmp_path):
    (tmp_path / "tools.py").write_text(TOOLS)
    tools = [
        {"type": "function", "name": name, "file": "tools.py", "function": name} for name in NAMES
    ]
    with FakeOpenAI(answer) as server:
        agent = agent_for(server, tmp_path, 1, tools=tools, backend=request.param)
        one_slot = ExecutionConfig(parallel_test_cases=1, llm_timeout=120, max_retries=0)
        backend = await BackendSelector.select(agent, execution=one_slot)
        yield backend
        await backend.teardown()


async def test_a_tool_that_blocks_holds_no_slot_of_the_endpoint(backend):
    blocked = asyncio.create_task(backend.invoke_once("block"))

    other = await backend.invoke_once("let_go")

    assert other.response == "OK: done"
    assert (await blocked).response == "OK: released"


async def test_of_a_thousand_calls_only_so_many_run_at_once(backend):
    result = await backend.invoke_once("count 1000")

    assert len(result.tool_results) == 1000
    assert max(int(one["result"]) for one in result.tool_results) <= MAX_CONCURRENT_TOOLS
