"""Prices from all configuration files."""

import pytest

from holodeck.config.checks.agent import check
from holodeck.config.loader import ConfigLoader
from holodeck.config.prices import list_price, require_prices, with_list_prices
from holodeck.errors import ConfigError
from holodeck.models.token_usage import Price, PriceTable


def prices(folder, agents, project):
    folder.write("config.yaml", project)
    folder.agent(agents)
    return ConfigLoader().load_agent_yaml("agent.yaml").prices


def test_prices_of_the_agent_win_over_those_of_the_project(folder):
    found = prices(
        folder,
        "prices: {models: {gpt-x: {input: 1, output: 2}}}\n",
        "prices: {currency: EUR, models: {gpt-x: {input: 9, output: 9}, b: {input: 3, output: 4}}}",
    )

    assert found.unit == "EUR"
    assert found.models == {"gpt-x": Price(input=1, output=2), "b": Price(input=3, output=4)}


def test_prices_in_two_currencies_are_an_error(folder):
    with pytest.raises(ConfigError, match=r"prices in EUR and USD; use one currency"):
        prices(folder, "prices: {currency: USD}\n", "prices: {currency: EUR}")


def test_a_negative_price_is_an_error_with_its_place(folder):
    folder.agent("prices: {models: {gpt-x: {input: -1, output: 2}}}\n")

    with pytest.raises(ConfigError, match=r"agent.yaml:\d+:\d+.*prices.models.gpt-x.input"):
        ConfigLoader().load_agent_yaml("agent.yaml")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("openai/gpt-4o-mini", Price(input=0.15, output=0.6)),
        ("gpt-4o-mini-2024-07-18", Price(input=0.15, output=0.6)),
        ("azure_openai/gpt-4o", Price(input=2.5, output=10)),
        ("openai/no-such-model", None),
        ("ollama/llama3", None),
        ("agent", None),
    ],
)
def test_a_model_without_a_price_has_the_list_price_of_its_provider(model, expected):
    assert list_price(PriceTable(), model) == expected


def test_a_list_price_counts_in_dollars_and_only_at_the_providers_own_endpoint(folder):
    elsewhere = "endpoint: http://127.0.0.1:1/v1, api_key: none"
    folder.agent(JUDGE.replace("gpt-j", "gpt-4o-mini").replace("api_key: none", elsewhere))
    agent = ConfigLoader().load_agent_yaml("agent.yaml")

    prices = with_list_prices(agent).prices

    assert list_price(prices, "openai/gpt-4o-mini") is None
    assert list_price(prices, "openai/gpt-4o") is not None
    assert list_price(PriceTable(currency="EUR"), "openai/gpt-4o") is None


JUDGE = """\
evaluations:
  model: {provider: openai, name: gpt-j, api_key: none}
  metrics: [{type: judge, name: polite, criteria: ["Is it polite?"], enabled: true}]
"""

SIMULATED = """\
test_cases:
  - simulate: {situation: wants a refund, model: {provider: openai, name: gpt-u, api_key: none}}
    expected_tools: []
"""


@pytest.mark.parametrize(
    ("judge", "lacking"),
    [
        (JUDGE, "openai/gpt-j"),
        (JUDGE.replace("true", "false"), None),
        (SIMULATED, "openai/gpt-u"),
        (JUDGE + "prices: {models: {gpt-*: {input: 1, output: 1}}}\n", None),
        (JUDGE + "prices: {models: {gpt-*: {input: 1, output: 1}}}\nbackend: 'a:b'\n", "agent"),
    ],
    ids=["judge", "judge-that-nobody-asks", "simulated-user", "priced", "agent-without-a-model"],
)
def test_a_limit_of_costs_needs_the_price_of_every_model_that_is_asked(folder, judge, lacking):
    folder.agent(judge)
    agent = ConfigLoader().load_agent_yaml("agent.yaml")
    if agent.backend is not None:
        agent = agent.model_copy(update={"model": None})

    if lacking is None:
        require_prices(agent, "--max-cost")
        return
    with pytest.raises(ConfigError, match=f"^--max-cost: .* a price for {lacking}; write"):
        require_prices(agent, "--max-cost")


def test_a_price_in_the_agent_yaml_that_no_model_uses_is_warned_of(folder):
    folder.write("config.yaml", "prices: {models: {of-others: {input: 1, output: 1}}}\n")
    price = "{input: 1, output: 1}"
    folder.agent(JUDGE + f"prices: {{models: {{gpt-*: {price}, gtp-j: {price}}}}}\n")

    found = check(ConfigLoader().load_agent_yaml("agent.yaml"))

    assert [one.path for one in found if one.path.startswith("prices")] == ["prices.models.gtp-j"]
