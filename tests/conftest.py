"""Fixtures for every test, and the watch over threads and tasks that outlive one."""

import asyncio
import gc
import inspect
import sys
import threading

import pytest
from hypothesis import HealthCheck, settings

from fakes import AgentFolder, FakeOpenAI
from support.certificates import read_once
from support.golden import compare_with_golden, write_golden
from support.nursery import share_programs
from support.pace import Hang

_MODULES_OF_A_LIBRARY = 50
"""How many modules a test imports at least where it imports a library."""
SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]

settings.register_profile(
    "ci", max_examples=60, deadline=None, suppress_health_check=SLOW, derandomize=True
)
settings.register_profile("long", max_examples=3000, deadline=None, suppress_health_check=SLOW)


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="Write the golden files of the examples anew."
    )


def pytest_configure(config):
    """Properties are searched within bounds and the same each time, so that what is red was red
    before the change too; with `--hypothesis-profile=long`, long and by chance."""
    if not config.getoption("--hypothesis-profile", None):
        settings.load_profile("ci")
    if config.getoption("numprocesses", None):
        share_programs()
    else:
        read_once()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Modules and tests stay to the end: garbage collection need not look at them each time.

    Nor as often as by default, which takes a tenth of the time of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(10_000)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    """Libraries that a test has imported stay, too, so each collection would look at them anew."""
    before = len(sys.modules)
    result = yield
    if len(sys.modules) - before >= _MODULES_OF_A_LIBRARY:
        gc.collect()
        gc.freeze()
    return result


@pytest.fixture
def golden(request):
    """Compares the reports and records of a folder with the golden files of a name."""
    return write_golden if request.config.getoption("--update-golden") else compare_with_golden


@pytest.fixture
def fake_openai():
    """A running server without a script: it echoes the prompt."""
    with FakeOpenAI() as server:
        yield server


@pytest.fixture
def agent_dir(tmp_path, fake_openai):
    """An empty folder whose `write_agent` points at the server."""
    path = tmp_path / "agent"
    path.mkdir()
    return AgentFolder(path, fake_openai)


@pytest.fixture
def hang():
    """What does not come back by itself, and fails a test that waited for it all the same."""
    held = Hang()
    yield held
    held.let_go()
    assert not held.was_waited_for, "somebody waited for what hangs"


@pytest.fixture
async def _no_task_left():
    """Set up first and torn down last inside the loop, so only leaked tasks are left to see."""
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:  # the loop closes abandoned async generators in tasks of its own; they end at once
        _, left = await asyncio.wait(left, timeout=10)
    assert not left, f"tasks outlived the test: {left}"


@pytest.fixture(autouse=True)
def _nothing_outlives_the_test(request):
    """Fails a test whose threads (other than daemons) or asyncio tasks outlive it."""
    before = set(threading.enumerate())
    yield
    started = [t for t in threading.enumerate() if t not in before and not t.daemon]
    for thread in started:
        thread.join(timeout=10)
    left = [t.name for t in started if t.is_alive()]
    assert not left, f"threads outlived the test: {left}"


def pytest_collection_modifyitems(items):
    """Every async test is watched for tasks; sync tests need no loop for that."""
    for item in items:
        if inspect.iscoroutinefunction(getattr(item, "function", None)):
            names = item.fixturenames
            names.insert(names.index("_nothing_outlives_the_test") + 1, "_no_task_left")
