"""Models of an agent.yaml that need an API key and have none."""

from collections.abc import Iterable, Iterator

from holodeck.config.providers import missing_key_message
from holodeck.config.source import KeyPath
from holodeck.errors import ConfigError
from holodeck.lib.evaluators.build import judge_model_of, needs_judge
from holodeck.models.agent import Agent
from holodeck.models.evaluation import MetricSettings
from holodeck.models.llm import LLMProvider
from holodeck.models.price import OWN_AGENT, PriceTable
from holodeck.models.test_case import TurnModel


def find_missing_keys(agent: Agent) -> Iterator[tuple[KeyPath, str]]:
    """Place and explanation of each; a judge that nothing asks needs none."""
    told = set()
    if agent.model is not None and not agent.has_own_model:
        lacking = missing_key_message(agent.model)
        if lacking is not None:
            told.add(id(agent.model))
            yield ("model",), lacking
    for path, metric in all_metrics(agent):
        judge = judge_model_of(agent, metric) if metric.enabled and needs_judge(metric) else None
        lacking = None if judge is None or id(judge) in told else missing_key_message(judge)
        if lacking is not None:
            told.add(id(judge))
            yield path, f"the judge of {metric.label!r}: {lacking}"
    for path, what, model in conversation_models(agent):
        lacking = None if id(model) in told else missing_key_message(model)
        if lacking is not None:
            told.add(id(model))
            yield path, f"{what}: {lacking}"


def conversation_models(agent: Agent) -> Iterator[tuple[KeyPath, str, LLMProvider]]:
    """The models that judge criteria and play users."""
    for number, case in enumerate(agent.test_cases or []):
        judge, user = agent.judge_model, agent.simulator_model(case)
        if case.uses_judge and judge is not None:
            key = "script" if case.criteria is None else "criteria"
            yield ("test_cases", number, key), f"the judge of {key!r}", judge
        if case.simulate is not None and user is not None:
            yield ("test_cases", number, "simulate"), "the simulated user", user


def all_metrics(agent: Agent) -> Iterator[tuple[KeyPath, MetricSettings]]:
    """Every metric of the file with its place."""
    for index, metric in enumerate(agent.evaluations.metrics if agent.evaluations else []):
        yield ("evaluations", "metrics", index), metric
    for number, case in enumerate(agent.test_cases or []):
        path: KeyPath = ("test_cases", number)
        yield from _metrics_of(case, path)
        for at, part in case.parts:
            yield from _metrics_of(part, (*path, *at))


def _metrics_of(asked: TurnModel, path: KeyPath) -> Iterator[tuple[KeyPath, MetricSettings]]:
    for place, metric in enumerate(asked.evaluations or ()):
        yield (*path, "evaluations", place), metric
    for place, metric in enumerate(asked.scorers or ()):
        yield (*path, "scorers", place), metric


def merge_prices(tables: Iterable[PriceTable | None]) -> PriceTable | None:
    """One table of several, the first winning; None if there is none.

    Raises ConfigError if they are in different currencies.
    """
    known = [one for one in tables if one is not None]
    if not known:
        return None
    said = sorted({one.currency for one in known if one.currency is not None})
    if len(said) > 1:
        raise ConfigError(
            "prices.currency",
            f"the configuration files give prices in {' and '.join(said)}; write all in one",
        )
    models = {name: price for one in reversed(known) for name, price in one.models.items()}
    return PriceTable(currency=said[0] if said else None, models=models)


def price_key(model: LLMProvider) -> str:
    """What prices and reports call a model."""
    return f"{model.provider.value}/{model.name}"


def agent_price_key(agent: Agent) -> str:
    """What prices call the model behind the agent."""
    return OWN_AGENT if agent.model is None else price_key(agent.model)


def called_models(agent: Agent) -> Iterator[str]:
    """The models that a run asks, as prices call them; some more than once."""
    yield agent_price_key(agent)
    for _, metric in all_metrics(agent):
        judge = judge_model_of(agent, metric) if metric.enabled and needs_judge(metric) else None
        if judge is not None:
            yield price_key(judge)
    yield from (price_key(model) for _, _, model in conversation_models(agent))


def require_prices(agent: Agent, where: str) -> None:
    """Raise ConfigError if a limit of costs could not hold, as a model has no price."""
    table = agent.prices or PriceTable()
    lacking = [one for one in dict.fromkeys(called_models(agent)) if table.price_of(one) is None]
    if lacking:
        names = ", ".join(lacking)
        wish = f"prices: {{models: {{{lacking[0]}: {{input: …, output: …}}}}}}"
        raise ConfigError(
            where,
            f"max_cost cannot be held, as there is no price for {names}; write '{wish}', for a"
            " million tokens each, in agent.yaml or config.yaml, or limit calls or tokens instead",
        )
