"""The documented examples, in our words: as a script, and inside a loop as in a notebook."""

import subprocess
import sys

import pytest

from fakes import case, clean_environment
from holodeck.config.loader import ConfigLoader
from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.evaluators.nlp_metrics import BLEUEvaluator, F1ScoreEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.test_runner.eval_kwargs_builder import (
    EvalKwargsBuilder,
    build_retrieval_context_from_tools,
)
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.progress import ProgressIndicator
from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.models.config import ExecutionConfig

SCRIPT = """
import asyncio
from pathlib import Path

from holodeck.config.loader import ConfigLoader
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.progress import ProgressIndicator
from holodeck.lib.test_runner.reporter import generate_markdown_report


async def main():
    agent = ConfigLoader().load_agent_yaml("agent.yaml")
    shown = ProgressIndicator(total_tests=len(agent.test_cases or []))
    executor = TestExecutor(
        agent_config_path="agent.yaml",
        progress_callback=shown.update,
        on_test_start=lambda case: shown.start_test(case.name or "unnamed"),
    )
    report = await executor.execute_tests()
    print(shown.get_summary())
    Path("report.md").write_text(generate_markdown_report(report), encoding="utf-8")


asyncio.run(main())
"""
CASES = [
    case("greets", "Say hello", contains="hello"),
    case("misses", "Say hello", contains="goodbye"),
]


def test_the_script_of_the_documentation_runs_the_tests_and_writes_a_report(agent_dir, tmp_path):
    agent_dir.write_agent(test_cases=CASES)

    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=agent_dir.path, env=clean_environment(tmp_path),
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "Test Results: 1/2 passed (50.0%)" in ran.stdout
    report = (agent_dir.path / "report.md").read_text(encoding="utf-8")
    assert "# Test Report: greeter" in report
    assert "✅ greets</summary>" in report
    assert "### Test: misses ❌ FAILED" in report


async def test_the_same_works_in_a_loop_that_runs_already(agent_dir, monkeypatch):
    agent_dir.write_agent(test_cases=CASES)
    monkeypatch.chdir(agent_dir.path)
    agent = ConfigLoader().load_agent_yaml("agent.yaml")
    shown = ProgressIndicator(total_tests=len(agent.test_cases or []))
    started = []

    def start(one):
        started.append(one.name)
        shown.start_test(one.name or "unnamed")

    executor = TestExecutor(
        agent_config_path="agent.yaml",
        execution_config=ExecutionConfig(parallel_test_cases=1),
        progress_callback=shown.update,
        on_test_start=start,
    )
    report = await executor.execute_tests()
    await executor.shutdown()

    assert started == ["greets", "misses"]
    assert (shown.passed, shown.failed) == (1, 1)
    assert "[Test 2/2] FAIL misses" in shown.get_progress_line()
    assert "✅ greets</summary>" in generate_markdown_report(report)


async def test_a_cell_that_is_run_again_runs_the_tests_again(agent_dir):
    executor = TestExecutor(str(agent_dir.write_agent()))

    first, second = await executor.execute_tests(), await executor.execute_tests()
    await executor.shutdown()

    assert (first.summary.passed, second.summary.passed) == (1, 1)
    assert len(agent_dir.server.requests) == 2


class Echo(BaseEvaluator):
    """Gives back what it was called with."""

    PARAM_SPEC = ParamSpec(
        required=frozenset({EvalParam.RESPONSE, EvalParam.QUERY}),
        optional=frozenset({EvalParam.GROUND_TRUTH}),
        uses_retrieval_context=True,
    )

    async def _evaluate_impl(self, **kwargs):
        return {"score": 1.0, "given": kwargs}


class EchoInOtherWords(Echo):
    PARAM_SPEC = ParamSpec(
        required=frozenset({EvalParam.ACTUAL_OUTPUT, EvalParam.INPUT}),
        optional=frozenset({EvalParam.EXPECTED_OUTPUT}),
    )


def refund_case():
    passages = build_retrieval_context_from_tools(
        tool_results=[
            {"name": "search_kb", "result": "Goods can be sent back for 30 days."},
            {"name": "get_user", "result": "The user is Alice."},
        ],
        retrieval_tool_names={"search_kb"},
    )
    return EvalKwargsBuilder(
        agent_response="You can send goods back for 30 days.",
        input_query="How long can I send goods back?",
        ground_truth="Goods can be sent back for 30 days.",
        retrieval_context=passages,
    )


async def test_the_inputs_of_a_metric_are_gathered_under_its_own_names():
    evaluator = Echo()

    result = await evaluator.evaluate(**refund_case().build_for(evaluator))

    assert result["given"] == {
        "response": "You can send goods back for 30 days.",
        "query": "How long can I send goods back?",
        "ground_truth": "Goods can be sent back for 30 days.",
        "retrieval_context": ["Goods can be sent back for 30 days."],
    }


async def test_a_metric_with_other_names_gets_those_and_nothing_it_does_not_take():
    evaluator = EchoInOtherWords()

    result = await evaluator.evaluate(**refund_case().build_for(evaluator))

    assert result["given"] == {
        "actual_output": "You can send goods back for 30 days.",
        "input": "How long can I send goods back?",
        "expected_output": "Goods can be sent back for 30 days.",
    }


@pytest.mark.parametrize("make", [BLEUEvaluator, F1ScoreEvaluator])
async def test_the_same_inputs_serve_a_built_in_metric(make):
    evaluator = make()

    result = await evaluator.evaluate(**refund_case().build_for(evaluator))

    assert 0 < result["score"] <= 1
