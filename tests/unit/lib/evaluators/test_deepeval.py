"""What is known of DeepEval's metrics before anything is asked."""

import sys

import pytest
from pydantic import TypeAdapter

from holodeck.errors import ConfigError, EvaluationError, MissingExtra
from holodeck.lib.evaluators.base import Observation, Turn
from holodeck.lib.evaluators.build import RequiredInputs, build_evaluator
from holodeck.lib.evaluators.deepeval import FaithfulnessEvaluator, GEvalEvaluator
from holodeck.lib.evaluators.deepeval.adapter import JudgeRequests
from holodeck.lib.test_runner.eval_kwargs_builder import EvalKwargsBuilder
from holodeck.models.agent import Agent
from holodeck.models.evaluation import Metric
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import ToolInvocation

AGENT = Agent(name="a", model={"provider": "openai", "name": "m"}, instructions={"inline": "Hello"})


def metric(name, **keys):
    return TypeAdapter(Metric).validate_python({"type": "deepeval", "metric": name, **keys})


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepeval", None)

    with pytest.raises(MissingExtra, match="install deepeval"):
        FaithfulnessEvaluator()


NEEDS = [
    ("turn_relevancy", {}, "needs a conversation; write 'turns'"),
    ("tool_correctness", {}, "'expected_tools'"),
    ("tool_correctness", {"expected_tools": []}, None),
    ("hallucination", {}, "'files' or 'retrieval_context'"),
    ("hallucination", {"retrieval_context": ["text"]}, None),
    ("bias", {}, None),
]


@pytest.mark.parametrize(("name", "keys", "message"), NEEDS)
def test_what_a_case_cannot_give_is_known_before_it_runs(name, keys, message):
    inputs, one = RequiredInputs(AGENT), metric(name)
    inputs.register(one, build_evaluator(one))

    missing = inputs.describe_missing(one, TestCaseModel(input="Hello?", **keys))

    assert missing is None if message is None else message in missing


@pytest.mark.parametrize(
    "case",
    [
        {"turns": [{"input": "a"}]},
        {"script": ["agent"]},
        {"simulate": {"situation": "waits"}},
        {"input": "a", "history": [{"role": "assistant", "content": "b"}]},
    ],
    ids=["turns", "script", "simulate", "history"],
)
def test_a_case_of_every_form_but_one_input_is_a_conversation(case):
    inputs, one = RequiredInputs(AGENT), metric("turn_relevancy")
    inputs.register(one, build_evaluator(one))

    assert inputs.describe_missing(one, TestCaseModel.model_validate(case)) is None


def test_a_metric_about_tools_is_given_the_calls_and_the_expectation():
    call = ToolInvocation(name="search")
    seen = Observation("", input="Hello?", tool_calls=(call,), expected_tools=["search"])
    builder = EvalKwargsBuilder("", "Hello?", observation=seen)

    given = builder.build_for(build_evaluator(metric("tool_correctness")))

    assert given["tools_called"] == (call,)
    assert given["expected_tools"] == ["search"]


def test_a_metric_about_a_conversation_is_given_its_turns():
    turns = (Turn("user", "Hello?"), Turn("assistant", "Hello!"))
    builder = EvalKwargsBuilder("Hello!", observation=Observation("Hello!", turns=turns))

    assert builder.build_for(build_evaluator(metric("turn_relevancy")))["turns"] == turns


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({}, "criteria"),
        ({"criteria": " "}, "criteria"),
        ({"criteria": "kind", "evaluation_params": []}, "evaluation_params"),
    ],
)
def test_criteria_that_say_nothing_are_refused(keys, field):
    with pytest.raises(ConfigError) as caught:
        GEvalEvaluator("polite", **keys)

    assert caught.value.field == field


async def test_a_metric_that_asks_nobody_has_nobody_to_ask():
    with pytest.raises(EvaluationError, match="cannot be checked"):
        await JudgeRequests(None).ask("Why?", None)
