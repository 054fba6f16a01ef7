"""The prices of a run, from all files that say some, and the models that have none."""

from collections.abc import Iterable, Iterator

from holodeck.config.keys import metrics_in, models_of_conversations
from holodeck.errors import ConfigError
from holodeck.lib.evaluators.metric_table import asks_a_judge, judge_of
from holodeck.models.agent import Agent
from holodeck.models.llm import LLMProvider
from holodeck.models.price import OWN_AGENT, PriceTable


def merged(tables: Iterable[PriceTable | None]) -> PriceTable | None:
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


def name_of(model: LLMProvider) -> str:
    """What prices and reports call a model."""
    return f"{model.provider.value}/{model.name}"


def agents_model(agent: Agent) -> str:
    """What prices call the model behind the agent."""
    return OWN_AGENT if agent.model is None else name_of(agent.model)


def models_asked(agent: Agent) -> Iterator[str]:
    """The models that a run asks, as prices call them; some more than once."""
    yield agents_model(agent)
    for _, metric in metrics_in(agent):
        judge = judge_of(agent, metric) if metric.enabled and asks_a_judge(metric) else None
        if judge is not None:
            yield name_of(judge)
    yield from (name_of(model) for _, _, model in models_of_conversations(agent))


def refuse_unpriced(agent: Agent, where: str) -> None:
    """Raise ConfigError if a limit of costs could not hold, as a model has no price."""
    table = agent.prices or PriceTable()
    lacking = [one for one in dict.fromkeys(models_asked(agent)) if table.price_of(one) is None]
    if lacking:
        names = ", ".join(lacking)
        wish = f"prices: {{models: {{{lacking[0]}: {{input: …, output: …}}}}}}"
        raise ConfigError(
            where,
            f"max_cost cannot be held, as there is no price for {names}; write '{wish}', for a"
            " million tokens each, in agent.yaml or config.yaml, or limit calls or tokens instead",
        )
