"""The second agent of a comparison: what is its own, and what comes from the first."""

import pytest

from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError
from holodeck.lib.compare.against import unused_keys, with_tests_of
from holodeck.models.config import ExecutionConfig

FIRST = """
name: old
model: {provider: openai, name: gpt-old, api_key: none}
instructions: {inline: Be old.}
prices: {models: {gpt-old: {input: 1, output: 1}, shared: {input: 1, output: 1}}}
evaluations: {metrics: [{metric: contains, value: x}]}
test_cases: [{name: asks, input: hi}]
"""
SECOND = """
name: new
model: {provider: openai, name: gpt-new, api_key: none}
instructions: {file: new.md}
prices: {models: {gpt-new: {input: 2, output: 2}, shared: {input: 9, output: 9}}}
"""


@pytest.fixture
def agents(tmp_path):
    def load(first=FIRST, second=SECOND):
        loaded = []
        for name, text in (("first", first), ("second", second)):
            folder = tmp_path / name
            folder.mkdir()
            (folder / "agent.yaml").write_text(text)
            loaded.append(ConfigLoader().load_agent_yaml(folder / "agent.yaml"))
        return loaded

    return load


def test_the_agent_is_the_second_and_its_tests_are_the_first_ones(agents):
    first, second = agents()

    found = with_tests_of(first, second)

    assert (found.name, found.model, found.instructions) == (
        "new",
        second.model,
        second.instructions,
    )
    assert found.test_cases == first.test_cases
    assert (found.base_dir, found.own_dir) == (first.base_dir, second.base_dir)
    assert found.location("model", "name").endswith("second/agent.yaml:3:33")
    assert found.location("test_cases", 0).endswith("first/agent.yaml:7:14")
    assert found.with_cases([0]).location("test_cases", 0).endswith("first/agent.yaml:7:14")


def test_names_of_the_second_agent_are_expected_in_every_check(agents):
    cases = """
names: {look: find, id: number, Triage: triage}
test_cases:
  - input: hi
    expected_tools: [look, {name: look, args: {id: 7, other: 1}, agent: Triage}]
    forbidden_tools: [look_all, {name: '*look', allow: [look]}]
    handoffs: [Triage, orders]
    expect_approval: {tool: look, args: {id: 7}, then: approve}
  - turns: [{input: hi, expected_tools: [look]}]
  - script: [{user: hi}, agent, {check: {expected_tools: [look]}}, succeed]
"""
    first, second = agents(first=FIRST.partition("test_cases")[0] + cases)

    case, conversation, scripted = with_tests_of(first, second).test_cases

    [text, expected] = case.expected_tools
    assert (text, expected.name, expected.agent) == ("find", "find", "triage")
    assert expected.args == {"number": 7, "other": 1}
    assert case.forbidden_tools[0] == "look_all"
    assert (case.forbidden_tools[1].name, case.forbidden_tools[1].allow) == ("*look", ["find"])
    assert case.handoffs == ["triage", "orders"]
    [approval] = case.expected_approvals
    assert (approval.tool, approval.args) == ("find", {"number": 7})
    assert conversation.turns[0].expected_tools == ["find"]
    assert scripted.script[2].check.expected_tools == ["find"]
    assert first.test_cases[0].handoffs == ["Triage", "orders"]


def test_the_judge_of_the_first_agent_judges_both(agents):
    first, second = agents()

    found = with_tests_of(first, second)

    assert first.judge_model is first.model
    assert found.judge_model == first.model
    assert found.evaluations.metrics == first.evaluations.metrics


def test_prices_are_added_and_those_of_the_first_win(agents):
    first, second = agents()

    models = with_tests_of(first, second).prices.models

    assert [models[name].input for name in ("gpt-old", "gpt-new", "shared")] == [1, 2, 1]


def test_prices_in_two_currencies_cannot_be_compared(agents):
    first, second = agents(
        FIRST.replace("prices: {", "prices: {currency: EUR, "),
        SECOND.replace("prices: {", "prices: {currency: USD, "),
    )

    with pytest.raises(ConfigError, match="use one currency"):
        with_tests_of(first, second)


@pytest.mark.parametrize(
    ("more", "unused"),
    [
        ("", []),
        ("evaluations: {metrics: [{metric: contains, value: x}]}", []),
        ("test_cases: [{name: asks, input: hi}]", []),
        ("test_cases: [{name: asks, input: ho}]", ["test_cases"]),
        ("execution: {llm_timeout: 5}", ["execution"]),
        ("evaluations: {metrics: [{metric: contains, value: y}]}", ["evaluations"]),
    ],
)
def test_keys_that_differ_and_are_not_used_are_named(agents, more, unused):
    first, second = agents(second=SECOND + more + "\n")

    assert unused_keys(first, second, ExecutionConfig()) == unused
