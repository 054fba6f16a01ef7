"""Models of an agent.yaml that need an API key and have none."""

from collections.abc import Iterator

from holodeck.config.providers import missing_key
from holodeck.config.source import Path_
from holodeck.lib.evaluators.metric_table import asks_a_judge, judge_of
from holodeck.models.agent import Agent
from holodeck.models.evaluation import MetricSettings
from holodeck.models.llm import LLMProvider
from holodeck.models.test_case import TurnModel


def missing_keys(agent: Agent) -> Iterator[tuple[Path_, str]]:
    """Place and explanation of each; a judge that nothing asks needs none."""
    told = set()
    if agent.model is not None and not agent.brings_its_own_model:
        lacking = missing_key(agent.model)
        if lacking is not None:
            told.add(id(agent.model))
            yield ("model",), lacking
    for path, metric in metrics_in(agent):
        judge = judge_of(agent, metric) if metric.enabled and asks_a_judge(metric) else None
        lacking = None if judge is None or id(judge) in told else missing_key(judge)
        if lacking is not None:
            told.add(id(judge))
            yield path, f"the judge of {metric.label!r}: {lacking}"
    for path, what, model in models_of_conversations(agent):
        lacking = None if id(model) in told else missing_key(model)
        if lacking is not None:
            told.add(id(model))
            yield path, f"{what}: {lacking}"


def models_of_conversations(agent: Agent) -> Iterator[tuple[Path_, str, LLMProvider]]:
    """The models that judge criteria and play users."""
    for number, case in enumerate(agent.test_cases or []):
        judge, user = agent.judging_model, agent.simulator_of(case)
        if case.asks_judge and judge is not None:
            key = "script" if case.criteria is None else "criteria"
            yield ("test_cases", number, key), f"the judge of {key!r}", judge
        if case.simulate is not None and user is not None:
            yield ("test_cases", number, "simulate"), "the simulated user", user


def metrics_in(agent: Agent) -> Iterator[tuple[Path_, MetricSettings]]:
    """Every metric of the file with its place."""
    for index, metric in enumerate(agent.evaluations.metrics if agent.evaluations else []):
        yield ("evaluations", "metrics", index), metric
    for number, case in enumerate(agent.test_cases or []):
        path: Path_ = ("test_cases", number)
        yield from _metrics_of(case, path)
        for at, part in case.parts:
            yield from _metrics_of(part, (*path, *at))


def _metrics_of(asked: TurnModel, path: Path_) -> Iterator[tuple[Path_, MetricSettings]]:
    for place, metric in enumerate(asked.evaluations or ()):
        yield (*path, "evaluations", place), metric
    for place, metric in enumerate(asked.scorers or ()):
        yield (*path, "scorers", place), metric
