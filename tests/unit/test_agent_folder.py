"""The folder that tests write their agents to."""

import yaml

from fakes import case


def test_the_agent_points_at_the_server_and_overrides_replace_keys(agent_dir):
    path = agent_dir.write_agent(name="other", test_cases=None, execution={"llm_timeout": 1})

    written = yaml.safe_load(path.read_text())
    assert written["model"]["endpoint"] == agent_dir.server.url
    assert (written["name"], written["execution"]) == ("other", {"llm_timeout": 1})
    assert "test_cases" not in written


def test_the_plain_agent_is_valid(agent_dir):
    from holodeck.models.agent import Agent

    agent = Agent.model_validate(yaml.safe_load(agent_dir.write_agent().read_text()))

    assert agent.test_cases[0].input == "Say hello please"


def test_a_case_takes_any_field():
    assert case("n", "hi", expected_tools=[]) == {"name": "n", "input": "hi", "expected_tools": []}
