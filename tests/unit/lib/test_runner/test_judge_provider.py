"""Who judges, and what is said about it."""

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.judging.judges import Judges
from holodeck.lib.test_runner.grading.checks import EvaluatorSet
from holodeck.models.agent import Agent
from holodeck.models.metrics.deepeval import RAGMetric

ENDPOINT = "http://127.0.0.1:1"


def model(name, provider="openai"):
    at = {} if provider == "local" else {"endpoint": ENDPOINT}
    return {"provider": provider, "name": name, **at}


def metric(**keys):
    return RAGMetric(type="rag", metric_type="faithfulness", **keys)


def evaluator_set(agent_model=None, judge_model=None):
    evaluations = {"model": judge_model, "metrics": [{"metric": "contains", "value": "x"}]}
    own = {"model": agent_model, "instructions": {"inline": "hi"}} if agent_model else {}
    backend = {} if agent_model else {"backend": "a:b"}
    agent = Agent(name="x", evaluations=evaluations, **own, **backend)
    return EvaluatorSet(agent, judges=Judges())


def test_the_metrics_own_model_judges_before_the_shared_one_and_that_before_the_agents():
    every = evaluator_set(model("agents"), model("shared"))

    assert every.find_judge_of(metric(model=model("own"))).name == "openai/own"
    assert every.find_judge_of(metric()).name == "openai/shared"
    assert evaluator_set(model("agents")).find_judge_of(metric()).name == "openai/agents"


def test_a_metric_without_anybody_to_judge_is_a_configuration_error():
    assert evaluator_set().find_judge_of(metric()) is None
    judged = {"type": "judge", "name": "polite", "criteria": ["It is polite."]}
    agent = Agent(name="x", backend="a:b", evaluations={"metrics": [judged]})
    with pytest.raises(ConfigError, match=r"metrics\[0\]: .* needs a model that judges"):
        EvaluatorSet(agent)


def test_a_judge_that_is_the_agent_is_warned_of_once(caplog):
    seen = evaluator_set(model("same"), model("same"))

    for _ in range(2):
        seen.warn_of(metric(model=model("same")).model)

    [note] = seen.notes
    assert "the agent's own model" in note
    assert [record.message for record in caplog.records] == [note]


def test_a_judge_that_is_too_small_is_warned_of(caplog):
    seen = evaluator_set(model("agents"))

    seen.warn_of(metric(model=model("smollm2-135m-instruct", "local")).model)
    seen.warn_of(metric(model=model("other")).model)

    assert ["too small to judge" in note for note in seen.notes] == [True]
