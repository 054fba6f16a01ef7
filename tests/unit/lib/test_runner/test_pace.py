"""How many cases of the user's own code run at once when nobody says a number."""

import json
import subprocess
import sys

import pytest

from holodeck.config.loader import ConfigLoader
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.progress import ProgressIndicator
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_result import Outcome
from support.cli import clean_environment, home_for
from support.folder import case
from support.results import a_result

COUNTING = """
import asyncio
import threading

together = asyncio.Barrier(10)
apart = threading.Lock()
running = 0


async def meet():
    global running
    running += 1
    assert running <= 10, "more than ten cases at once"
    await together.wait()
    running -= 1


async def alone():
    assert apart.acquire(blocking=False), "two cases at once"
    for _ in range(5):
        await asyncio.sleep(0)
    apart.release()


"""

MADE_BY_A_FUNCTION = """
class Agent:
    async def run(self, message):
        await {waits}()
        return message

def agent():
    return Agent()
"""

AT_ONCE = {
    "a coroutine function": """
async def agent(message):
    await meet()
    return message
""",
    "a class with an async method": """
class agent:
    async def run(self, message):
        await meet()
        return message
""",
    "a class that can be called": """
class agent:
    async def __call__(self, message):
        await meet()
        return message
""",
    "an object that a function makes": MADE_BY_A_FUNCTION.format(waits="meet"),
}

ONE_AT_A_TIME = {
    "a function": """
def agent(message):
    asyncio.run(alone())
    return message
""",
    "a class that is not async": """
class agent:
    def run(self, message):
        asyncio.run(alone())
        return message
""",
    "an object": """
class Agent:
    async def run(self, message):
        await alone()
        return message

agent = Agent()
""",
    "a method of an object": """
class Agent:
    async def run(self, message):
        await alone()
        return message

agent = Agent().run
""",
}


@pytest.fixture
def run(tmp_path):
    """Runs twenty cases of an agent with this code; gives the executor and its report."""

    async def report_of(code, scope=None, **execution):
        name = f"pace_agent_{abs(hash((code, str(tmp_path))))}"
        (tmp_path / f"{name}.py").write_text(COUNTING + code)
        cases = [case(f"case {n}", f"say {n}", contains=f"say {n}") for n in range(20)]
        agent = Agent.model_validate(
            {
                "name": "pace",
                "backend": {"type": "python", "target": f"{name}:agent", "scope": scope},
                "test_cases": cases,
            }
        ).with_base_dir(tmp_path)
        settings = ConfigLoader().resolve_execution_config(
            ExecutionConfig(llm_timeout=20, **execution)
        )
        executor = TestExecutor(
            str(tmp_path / "agent.yaml"), agent_config=agent, resolved_execution_config=settings
        )
        try:
            return executor, await executor.execute_tests()
        finally:
            sys.modules.pop(name, None)

    return report_of


@pytest.mark.parametrize("shape", AT_ONCE)
async def test_async_cases_that_share_no_object_run_ten_at_once(run, shape):
    """Each agent waits until ten are there."""
    executor, report = await run(AT_ONCE[shape])

    assert {one.outcome for one in report.results} == {Outcome.PASSED}, report.results[0].errors
    assert not executor.is_one_at_a_time


@pytest.mark.parametrize("shape", ONE_AT_A_TIME)
async def test_code_that_may_not_be_safe_at_once_runs_one_case_at_a_time(run, shape):
    executor, report = await run(ONE_AT_A_TIME[shape])

    assert {one.outcome for one in report.results} == {Outcome.PASSED}, report.results[0].errors
    assert executor.is_one_at_a_time


async def test_an_object_that_all_cases_share_gets_one_case_at_a_time(run):
    executor, report = await run(MADE_BY_A_FUNCTION.format(waits="alone"), scope="run")

    assert {one.outcome for one in report.results} == {Outcome.PASSED}, report.results[0].errors
    assert executor.is_one_at_a_time


async def test_who_asks_for_one_case_at_a_time_gets_it_without_a_hint(run):
    code = "async def agent(message):\n    await alone()\n    return message\n"

    executor, report = await run(code, parallel_test_cases=1)

    assert {one.outcome for one in report.results} == {Outcome.PASSED}
    assert not executor.is_one_at_a_time


def a_summary(*, seconds, tests=2, one_at_a_time=True):
    clock = iter([0.0])
    progress = ProgressIndicator(tests, clock=lambda: next(clock, seconds))
    for _ in range(tests):
        progress.update(a_result())
    progress.is_one_at_a_time = one_at_a_time
    return progress.get_summary()


def test_the_command_tells_of_a_run_one_test_at_a_time(tmp_path):
    (tmp_path / "bot.py").write_text("def answer(said):\n    return said\n")
    cases = [{"input": "hello", "ground_truth": "hello"}] * 2
    metrics = {"metrics": [{"metric": "equality"}]}
    agent = {"name": "a", "backend": "bot:answer", "evaluations": metrics, "test_cases": cases}
    (tmp_path / "agent.yaml").write_text(json.dumps(agent))
    code = (
        "import sys; from holodeck.lib.test_runner import progress; progress.SLOW_S = 0\n"
        "from holodeck.cli.main import run; sys.exit(run(['test', 'agent.yaml']))"
    )

    ran = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env=clean_environment(home_for(tmp_path)),
        capture_output=True,
        text=True,
        check=True,
    )

    assert "  One test at a time (not async, or a shared object); try -j N\n" in ran.stdout


def test_a_long_run_one_test_at_a_time_says_how_to_be_faster():
    assert "  One test at a time (not async, or a shared object); try -j N" in a_summary(
        seconds=3600
    )


@pytest.mark.parametrize(
    "run",
    [{"seconds": -60}, {"tests": 1}, {"one_at_a_time": False}],
    ids=lambda run: next(iter(run)),
)
def test_a_run_that_could_not_be_faster_says_nothing_of_it(run):
    assert "One test at a time" not in a_summary(**({"seconds": 3600} | run))
