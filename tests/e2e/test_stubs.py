"""Sealed tools of an agent without a model: none runs, however the cases are run."""

import pytest

from holodeck.config.loader import ConfigLoader
from holodeck.lib.reports.formats import generate_json_report
from holodeck.lib.reports.markdown_report import generate_markdown_report
from holodeck.lib.reports.terminal import detail_lines
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.models.config import ExecutionConfig
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_result import TestResult
from support.played import recorded
from support.rescore import rescore

TOOLS = """
from pathlib import Path

def get_order(id: int) -> dict:
    Path(f"{__file__}.ran").touch()
    return {"status": "sent"}

def refund(id: int) -> str:
    Path(f"{__file__}.ran").touch()
    return "refunded"
"""
AGENT = """
name: shop
backend: chat
model: {provider: scripted}
instructions: {inline: Be brief.}
tools:
  - {type: function, name: get_order, file: tools.py, function: get_order}
  - {type: function, name: refund, file: tools.py, function: refund, side_effects: true}
tools_in_test: sealed
stubs:
  refund: [{call: 1, raises: timeout}, {returns: refunded}]
model_replies:
  - {tool_calls: [{get_order: {id: 7}}, {get_order: {id: 8}}]}
  - {tool_calls: [{refund: {id: 7}}]}
  - {tool_calls: [{refund: {id: 7}}]}
  - {text: Done.}
test_cases:
  - input: "Refund order 7, {{n}}"
    name: "{{n}}"
    parameters: {n: [%s]}
    stubs: {get_order: [{when: {id: 7}, returns: {status: lost, by: "{{n}}"}}, {returns: none}]}
    expected_tools: [{name: refund, count: 2}]
    max_tool_calls: 4
"""


@pytest.fixture
def write(tmp_path):
    """Writes the agent with some cases, and returns its file."""

    def write(count, agent=AGENT):
        (tmp_path / "tools.py").write_text(TOOLS)
        numbers = ", ".join(map(str, range(count)))
        (tmp_path / "agent.yaml").write_text(agent % numbers)
        return str(tmp_path / "agent.yaml")

    return write


async def run(file, **settings):
    return await TestExecutor(file, ExecutionConfig(**settings)).execute_tests()


def observed(report):
    """What was observed and decided of each case."""
    keys = {"name", "args", "result", "error", "stub"}
    return [
        [result.outcome, *(call.model_dump(include=keys) for call in result.tool_invocations)]
        for result in report.results
    ]


async def test_no_tool_runs_in_200_sealed_cases_and_all_ways_to_run_them_agree(write, tmp_path):
    file = write(200)

    reports = [
        await run(file, parallel_test_cases=1),
        await run(file, parallel_test_cases=50),
        await run(file, workers=2),
    ]

    first, *others = map(observed, reports)
    assert {outcome for outcome, *_ in first} == {Outcome.PASSED}
    assert first[3][1]["result"] == {"status": "lost", "by": 3}
    assert [call["error"] for call in first[3][1:]] == [None, None, "TimeoutError: timeout", None]
    assert others == [first, first]
    assert not (tmp_path / "tools.py.ran").exists()


FORMATS = {
    "markdown": (generate_markdown_report, "refund (stub: raises)"),
    "json": (generate_json_report, '"kind": "raises"'),
    "terminal": (lambda report: "\n".join(detail_lines(1, report.results[0])), "(stub: raises)"),
}


async def test_every_report_marks_the_calls_that_a_stub_took(write):
    report = await run(write(1))

    for render, mark in FORMATS.values():
        assert mark in render(report)


async def test_a_fault_that_was_not_delivered_is_an_error_also_when_graded_again(write):
    agent = AGENT.replace("call: 1, raises", "call: 3, raises").replace(", count: 2", "")
    file = write(1, agent)

    report = await run(file)
    stored = TestResult.model_validate_json(report.results[0].model_dump_json())
    again = await rescore(ConfigLoader().load_agent_yaml(file), recorded(stored))

    reason = "refund was called 2 times; the fault 'raises' at call 3 was not delivered"
    for result in (report.results[0], again.report.results[0]):
        assert result.outcome is Outcome.METRIC_ERROR
        assert any(reason in text for text in map(str, result.reasons()))
    assert again.report.results[0].tool_checks == stored.tool_checks
