"""Prices from all configuration files."""

import pytest

from holodeck.config.loader import ConfigLoader
from holodeck.config.model_calls import require_prices
from holodeck.errors import ConfigError
from holodeck.models.token_usage import Price


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
