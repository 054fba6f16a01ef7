"""Who judges, and what is said about it."""

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.evaluators.build import judge_model_of
from holodeck.lib.test_runner.grading.checks import EvaluatorSet
from holodeck.models.agent import Agent
from holodeck.models.metrics.deepeval import RAGMetric

ENDPOINT = "http://127.0.0.1:1"


def model(name, provider="openai"):
    at = {} if provider == "local" else {"endpoint": ENDPOINT}
    return {"provider": provider, "name": name, **at}


def metric(**keys):
    return RAGMetric(type="rag", metric_type="faithfulness", **keys)


def agent_with(agent_model=None, judge_model=None):
    evaluations = {"model": judge_model, "metrics": [{"metric": "contains", "value": "x"}]}
    own = {"model": agent_model, "instructions": {"inline": "hi"}} if agent_model else {}
    backend = {} if agent_model else {"backend": "a:b"}
    return Agent(name="x", evaluations=evaluations, **own, **backend)


def judge_of(judged, *models):
    llm = judge_model_of(agent_with(*models), judged)
    return None if llm is None else llm.label


def test_the_metrics_own_model_judges_before_the_shared_one_and_that_before_the_agents():
    every = model("agents"), model("shared")

    assert judge_of(metric(model=model("own")), *every) == "openai/own"
    assert judge_of(metric(), *every) == "openai/shared"
    assert judge_of(metric(), model("agents")) == "openai/agents"


def test_a_metric_without_anybody_to_judge_is_a_configuration_error():
    assert judge_of(metric()) is None
    judged = {"type": "judge", "name": "polite", "criteria": ["It is polite."]}
    agent = Agent(name="x", backend="a:b", evaluations={"metrics": [judged]})
    with pytest.raises(ConfigError, match=r"metrics\[0\]: .* needs a model that judges"):
        EvaluatorSet(agent)


def test_a_judge_that_is_the_agent_is_warned_of_once(caplog):
    seen = EvaluatorSet(agent_with(model("same"), model("same")))

    for _ in range(2):
        seen.warn_of(metric(model=model("same")).model)

    [note] = seen.notes
    assert "the agent's own model" in note
    assert [record.message for record in caplog.records] == [note]


def test_a_judge_that_is_too_small_is_warned_of(caplog):
    seen = EvaluatorSet(agent_with(model("agents")))

    seen.warn_of(metric(model=model("smollm2-135m-instruct", "local")).model)
    seen.warn_of(metric(model=model("other")).model)

    assert ["too small to judge" in note for note in seen.notes] == [True]
