"""Agents of each framework in the shapes that projects have: where their code is, and how it opens
and delegates.

Each row runs the agent.yaml of a project with one package, whose modules import each other by their
whole names.
"""

import sys

import pytest

from fakes import FakeOpenAI
from holodeck import arun
from holodeck.models.test_result import Outcome
from support.folder import write_files
from support.frameworks import all_rows, script
from support.nested_agents import DELEGATING, model

ROWS = {row.__module__.rpartition(".")[2]: row for row in reversed(all_rows())}
"""The first row of each framework."""
MODEL = """
from types import SimpleNamespace
from support.frameworks.{module} import {row}

def make():
    return {row}(SimpleNamespace(url={url!r}, root={root!r}))
"""
DESK = """
from contextlib import asynccontextmanager
from shop.model import make

subject = make()
agent = subject.agent
events = []

@asynccontextmanager
async def open_agent():
    events.append("enter")
    yield agent
    events.append("exit")
"""
DELEGATES = """
from openai import AsyncOpenAI
from support.nested_agents import {outer}
from shop.specialist import ask

client = AsyncOpenAI(base_url={url!r}, api_key="not-a-real-key", max_retries=0)
subject = client
agent = {outer}(client, ask(client))
"""
SPECIALIST = "from support.nested_agents import {inner} as ask\n"
CASES = """
test_cases:
  - name: first
    input: Where is order 7?
    evaluations: [{metric: exact_match, value: "OK: order 7 is shipped"}]
    expected_tools: [lookup_order]
  - {name: second, input: hello, evaluations: [{metric: exact_match, value: "OK: hello"}]}
execution: {parallel_test_cases: 1}
"""
LAYOUTS = {
    "package": ("shop", "agent.yaml", ""),
    "tests in a sub-folder": ("shop", "tests/evals/agent.yaml", "code: ../..\n"),
    "src": ("src/shop", "evals/agent.yaml", ""),
}
"""Where the package is, where the agent.yaml is, and what that says of the code."""


async def run_project(folder, layout, files, target, cases):
    """Return the results of a project, and the module of its agent."""
    package, path, code = LAYOUTS[layout]
    if layout == "src":
        (folder / "pyproject.toml").touch()
    write_files(folder / package, {"__init__.py": "", **files})
    agent = f'name: desk\nbackend: "shop.desk:{target}"\n{code}{cases}'
    write_files(folder, {path: agent})
    report = await arun(folder / path)
    desk = sys.modules["shop.desk"]
    if desk.subject.close is not None:
        await desk.subject.close()
    return report.results, desk


def files_of(row, server):
    names = {"module": row.__module__.rpartition(".")[2], "row": row.__name__}
    source = MODEL.format(url=server.url, root=server.root, **names)
    return {"model.py": source, "desk.py": DESK}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_an_agent_is_found_where_the_code_of_its_project_is(row, layout, tmp_path):
    with FakeOpenAI(script) as server:
        results, _ = await run_project(tmp_path, layout, files_of(row, server), "agent", CASES)

    for result in results:
        assert result.outcome is Outcome.PASSED, result.reasons()


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_an_agent_that_a_context_manager_opens_is_opened_for_each_case(row, tmp_path):
    with FakeOpenAI(script) as server:
        files = files_of(row, server)
        results, desk = await run_project(tmp_path, "src", files, "open_agent", CASES)

    assert [result.agent_response for result in results] == ["OK: order 7 is shipped", "OK: hello"]
    assert desk.events == ["enter", "exit"] * 2


@pytest.mark.parametrize(("outer", "inner"), DELEGATING, ids=lambda value: value.__name__)
async def test_no_check_passes_that_a_specialist_of_the_project_breaks(outer, inner, tmp_path):
    cases = "test_cases: [{name: a, input: '7', forbidden_tools: [delete_order]}]\n"
    with FakeOpenAI(model) as server:
        files = {
            "desk.py": DELEGATES.format(outer=outer.__name__, url=server.url),
            "specialist.py": SPECIALIST.format(inner=inner.__name__),
        }
        [result], _ = await run_project(tmp_path, "src", files, "agent", cases)

    assert len(server.requests) >= 4
    assert result.outcome in {Outcome.FAILED, Outcome.METRIC_ERROR}
