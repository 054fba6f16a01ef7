"""What models cost: the prices of the configuration, else the list prices of their providers.

This is the adapter of the library `genai-prices`.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version

from holodeck.config.addresses import Address
from holodeck.config.model_calls import called_models, embedding_models
from holodeck.errors import ConfigError
from holodeck.models.agent import Agent
from holodeck.models.llm import LLMProvider, ProviderEnum
from holodeck.models.token_usage import CURRENCY, UNNAMED_AGENT, Price, PriceTable

_LIST = "genai-prices"
_TOKENS = 1000
"""Few enough for the first tier of a price that grows with the length of a prompt."""
_PROVIDERS: dict[str, str] = {
    ProviderEnum.AZURE_OPENAI: "azure",
    ProviderEnum.BEDROCK: "aws",
    ProviderEnum.FIREWORKS_AI: "fireworks",
    ProviderEnum.GEMINI: "google",
    ProviderEnum.TOGETHER_AI: "together",
    ProviderEnum.VERTEX_AI: "google",
    ProviderEnum.XAI: "x-ai",
}
"""Providers that the list calls differently."""


def merge_prices(tables: Iterable[PriceTable | None]) -> PriceTable | None:
    """Merge tables of prices; earlier tables take precedence. None if there is no table.

    Raises ConfigError for different currencies.
    """
    known = [table for table in tables if table is not None]
    if not known:
        return None
    currencies = sorted({table.currency for table in known if table.currency is not None})
    if len(currencies) > 1:
        raise ConfigError(
            "prices.currency",
            f"the configuration files give prices in {' and '.join(currencies)}; use one currency",
        )
    models = {name: price for table in reversed(known) for name, price in table.models.items()}
    return PriceTable(currency=currencies[0] if currencies else None, models=models)


def with_list_prices(agent: Agent) -> Agent:
    """Return the agent with prices that know which of its models have no list price.

    A model at an endpoint of its own may cost anything, whatever its name.
    """
    elsewhere = frozenset(
        model.label
        for model in _models(agent)
        if model.endpoint is not None
        and not Address((), model.endpoint, model.provider).is_providers_own
    )
    prices = agent.prices or PriceTable()
    return agent.model_copy(update={"prices": prices.without_list(elsewhere)})


def agent_price_key(agent: Agent) -> str:
    """Return the name of the agent's model in prices."""
    return UNNAMED_AGENT if agent.model is None else agent.model.label


def _models(agent: Agent) -> list[LLMProvider]:
    """Return the models that a run calls; some more than once."""
    return [*(model for _, _, model in called_models(agent)), *embedding_models(agent)]


def unused_prices(agent: Agent) -> list[str]:
    """Return the names in `prices` of the agent.yaml that stand for no model of the run.

    An agent of the user's own may ask any model.
    """
    if agent.prices is None or agent.has_own_model:
        return []
    return agent.prices.unused(model.label for model in _models(agent))


def require_prices(agent: Agent, location: str) -> None:
    """Raise ConfigError if a model has no price, so that `max_cost` cannot be enforced."""
    prices = with_list_prices(agent).prices or PriceTable()
    names = dict.fromkeys([agent_price_key(agent), *(model.label for model in _models(agent))])
    missing = [name for name in names if not (prices.price_of(name) or list_price(prices, name))]
    if missing:
        wish = f"prices: {{models: {{{missing[0]}: {{input: …, output: …}}}}}}"
        raise ConfigError(
            location,
            f"max_cost cannot be enforced without a price for {', '.join(missing)}; write"
            f" '{wish}', per million tokens, in agent.yaml or config.yaml, or limit calls or tokens"
            " instead",
        )


def list_price(prices: PriceTable, model: str) -> Price | None:
    """Return the list price of a `provider/model` or a `model`; None if it has none, or if the
    configuration has another currency."""
    is_listed = prices.unit == CURRENCY and model not in prices.elsewhere
    return _list_price(model) if is_listed else None


@cache
def describe_list() -> str:
    """Return the name and the version of the list, and the day whose prices count."""
    return f"{_LIST} {version(_LIST)} on {datetime.now(UTC):%Y-%m-%d}"


@cache
def _list_price(model: str) -> Price | None:
    # Imported here because few runs ask what they cost, and the list takes half a second.
    from genai_prices import Usage, calc_price

    provider, slash, name = model.partition("/")
    try:
        listed = calc_price(
            Usage(input_tokens=_TOKENS, output_tokens=_TOKENS),
            name if slash else model,
            provider_id=_PROVIDERS.get(provider, provider) if slash else None,
        )
    except LookupError:
        return None
    per_million = 1_000_000 // _TOKENS
    return Price(
        input=float(listed.input_price * per_million),
        output=float(listed.output_price * per_million),
    )
