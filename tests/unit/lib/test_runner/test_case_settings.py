"""What a case says about how it is run: its time limit, its scorers."""

import asyncio

import pytest

from fakes import ScriptedBackend
from holodeck.config.settings import with_case_settings
from holodeck.errors import ConfigError
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.models.agent import Agent
from holodeck.models.config import COMMAND_LINE, ExecutionConfig
from holodeck.models.test_result import Outcome


async def run(tmp_path, agent, case, limit_s=None, **shared):
    """The result of one case of an agent that is a function."""
    case = case if "turns" in case else {"input": "go"} | case
    raw = {"name": "a", "backend": "m:f", "test_cases": [case], **shared}
    settings = ExecutionConfig(llm_timeout=limit_s)
    executor = TestExecutor(
        str(tmp_path / "agent.yaml"),
        agent_config=Agent.model_validate(raw),
        resolved_execution_config=settings,
        backend=CallableBackend(agent, tmp_path, settings),
    )
    report = await executor.execute_tests()
    return report.results[0]


CHECKED = {"scorers": ["passfail"]}


async def slow(message):
    await asyncio.sleep(0.1)
    return message


async def stuck(message):
    await asyncio.Event().wait()


async def test_a_case_may_have_less_time_than_the_run_says(tmp_path):
    result = await run(tmp_path, stuck, {"timeout": 0.05, "scorers": ["passfail"]}, limit_s=60)

    assert result.outcome is Outcome.AGENT_ERROR
    assert "no answer within 0.05 s" in result.errors[0]


async def test_a_case_may_have_more_time_than_the_run_says(tmp_path):
    case = {"timeout": 60, "ground_truth": "go"} | CHECKED

    result = await run(tmp_path, slow, case, limit_s=0.01)

    assert result.outcome is Outcome.PASSED


@pytest.mark.parametrize(("source", "left"), [(COMMAND_LINE, None), ("agent.yaml", 5.0)])
def test_only_the_command_line_overrules_the_time_limit_of_a_case(source, left):
    raw = {"name": "a", "backend": "m:f", "test_cases": [{"input": "x", "timeout": 5}]}
    settings = ExecutionConfig(llm_timeout=9).with_sources({"llm_timeout": source})

    [case] = with_case_settings(Agent.model_validate(raw), settings).test_cases

    assert case.timeout == left


@pytest.mark.parametrize(
    ("case", "answer", "outcome"),
    [
        ({"ground_truth": "Paris"}, "it is paris", Outcome.PASSED),
        ({"ground_truth": "Paris"}, "Rome", Outcome.FAILED),
        ({}, "anything", Outcome.UNCHECKED),
        ({"expected_tools": ["look"]}, {"response": "x", "tool_calls": ["look"]}, Outcome.PASSED),
        ({"expected_tools": ["look"]}, {"response": "x", "tool_calls": ["lookup"]}, Outcome.FAILED),
    ],
)
async def test_passfail_wants_the_text_and_the_exact_tools(tmp_path, case, answer, outcome):
    result = await run(tmp_path, lambda _: answer, case | {"scorers": ["passfail"]})

    assert result.outcome is outcome


async def test_scorers_are_computed_besides_the_metrics_of_all_cases(tmp_path):
    shared = {"evaluations": {"metrics": [{"metric": "contains", "value": "a"}]}}
    scorers = ["passfail", {"metric": "contains", "value": "b"}]

    case = {"ground_truth": "a", "scorers": scorers}

    result = await run(tmp_path, lambda _: "a", case, **shared)

    found = {row.metric_name: row.passed for row in result.metric_results}
    assert found == {"contains": True, "passfail": True, "contains #2": False}
    assert result.outcome is Outcome.FAILED


async def test_scorers_of_a_turn_are_about_that_turn(tmp_path):
    turns = [{"input": "a", "scorers": [{"regex": {"pattern": "a"}}]}, {"input": "b"}]

    result = await run(tmp_path, lambda message: message, {"turns": turns, "scorers": ["passfail"]})

    assert [row.metric_name for row in result.turns[0].metric_results] == ["regex"]
    assert result.outcome is Outcome.PASSED


async def test_the_context_of_a_case_reaches_its_agent(tmp_path):
    def greet(message, case_context):
        return case_context["user"]

    result = await run(
        tmp_path, greet, {"context": {"user": "kim"}, "ground_truth": "kim"} | CHECKED
    )

    assert result.outcome is Outcome.PASSED


async def test_each_try_gets_a_context_that_no_other_has_touched(tmp_path):
    def first_breaks(message, case_context):
        if case_context.pop("fresh") and case_context["seen"]:
            return "ok"
        case_context["seen"].append(1)
        raise RuntimeError("down")

    seen = {"fresh": True, "seen": []}
    case = {"context": seen, "retries": 2} | CHECKED

    result = await run(tmp_path, first_breaks, case)

    assert result.outcome is Outcome.AGENT_ERROR
    assert seen == {"fresh": True, "seen": []}


async def test_a_context_that_goes_nowhere_is_told_before_any_agent_is_called(tmp_path):
    cases = [{"input": "a"}, {"input": "b", "context": {"user": "kim"}}]
    raw = {"name": "a", "backend": "m:f", "test_cases": cases}
    asked = []
    executor = TestExecutor(
        str(tmp_path / "agent.yaml"),
        agent_config=Agent.model_validate(raw),
        backend=ScriptedBackend(asked.append),
    )

    with pytest.raises(
        ConfigError, match=r"test_cases\[1\].context: the backend passes no context"
    ):
        await executor.execute_tests()

    assert asked == []
