"""Scripted models and faults of models, as they are written: what is refused, and where."""

import pytest

from holodeck.config.checks.agent import check
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError

SCRIPTED = "name: a\nmodel: {provider: scripted}\ninstructions: {inline: hi}\n"


def load(folder, text):
    folder.write("agent.yaml", text)
    return ConfigLoader().load_agent_yaml("agent.yaml")


def findings(folder, text):
    return [str(finding.message) for finding in check(load(folder, text)) if finding.path]


def case(**keys):
    """A test case with these keys, written in one line."""
    more = "".join(f", {key}: {value}" for key, value in keys.items())
    return f"test_cases:\n  - {{input: hi, expected_tools: []{more}}}\n"


INVALID = {
    ("model_replies", "[{txt: hi}]"): "unknown key; did you mean 'text'?",
    ("model_replies", "[{}]"): "answers nothing; write 'text' or 'tool_calls'",
    ("model_replies", "[{tool_calls: [{a: {}, b: {}}]}]"): "names 2 tools",
    ("model_faults", "[{call: 1}]"): "does nothing; write one of 'status', 'refusal'",
    ("model_faults", "[{call: 0, status: 500}]"): "found 0; expected at least 1",
    ("model_faults", "[{call: 1, status: 200}]"): "found 200; expected at least 400",
    ("model_faults", "[{call: 1, status: 500}, {call: 1, cut_off: true}]"): "cannot both happen",
    ("model_faults", "[{call: 1, delay: 1}, {call: 1, delay: 2}]"): "cannot both happen",
}


@pytest.mark.parametrize(("key", "message"), INVALID.items(), ids=map(" ".join, INVALID))
def test_an_invalid_reply_or_fault_is_an_error(folder, key, message):
    with pytest.raises(ConfigError, match=r"agent\.yaml:5") as caught:
        load(folder, SCRIPTED + case(**dict([key])))

    assert message in str(caught.value)


def test_a_delay_comes_with_another_fault_of_the_same_request(folder):
    faults = "[{call: 1, delay: 1}, {call: 1, status: 500}]"
    agent = load(folder, SCRIPTED + case(model_faults=faults, model_replies="[{text: hi}]"))

    assert check(agent) == []


def test_a_case_of_a_scripted_model_needs_replies(folder):
    assert findings(folder, SCRIPTED + case()) == [
        "'provider: scripted' needs 'model_replies', which the case lacks"
    ]


def test_replies_of_the_agent_are_those_of_its_cases(folder):
    assert findings(folder, SCRIPTED + "model_replies: [{text: hi}]\n" + case()) == []


def test_a_fault_after_the_last_reply_is_an_error(folder):
    faults = "[{call: 1, status: 429}, {call: 3, status: 500}, {call: 4, cut_off: true}]"
    text = SCRIPTED + case(model_replies="[{text: hi}]", model_faults=faults)

    assert findings(folder, text) == [
        "the fault 'cut_off' at call 4 cannot be delivered: 'model_replies' has 1 reply"
    ]


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ('backend: "bot:answer"', "write 'tap: true' under 'backend'"),
        ('backend: {type: http, url: "http://127.0.0.1:1/"}', "write 'tap: true' under 'backend'"),
        (
            "model: {provider: anthropic, name: m, api_key: k}\ninstructions: {inline: hi}",
            "write 'model: {provider: scr",
        ),
    ],
    ids=["function", "url", "model of Anthropic"],
)
def test_what_nothing_can_stand_in_for_is_said_before_the_run(folder, agent, message):
    folder.write("bot.py", "def answer(message): return message\n")
    text = f"name: a\n{agent}\n" + case(
        model_replies="[{text: hi}]", model_faults="[{call: 1, delay: 1}]"
    )

    first, second, *_ = findings(folder, text)

    assert message in first
    assert second == first


def test_a_scripted_model_judges_nothing(folder):
    text = SCRIPTED + case(model_replies="[{text: hi}]", criteria="[is polite]")

    assert any("criteria need a judge model" in message for message in findings(folder, text))


def test_a_scripted_model_has_no_key(folder):
    with pytest.raises(ConfigError, match="a scripted model has no 'endpoint' and no 'api_key'"):
        load(folder, SCRIPTED.replace("scripted}", "scripted, api_key: k}") + case())


def test_stubs_of_a_url_need_a_tap_behind_which_no_tool_is_sealed(folder):
    url = 'name: a\nbackend:\n  type: http\n  url: "http://127.0.0.1:1/"\n'
    tap = "  tap: true\n  request: {q: '{input}', model: '{tap_url}/openai/v1'}\n"
    stubs = {"stubs": "{refund: [{raises: timeout, optional: true}]}"}

    [untapped, *_] = findings(folder, url + case(**stubs))

    assert untapped.endswith("cannot stub them; remove it, or write 'tap: true' under 'backend'")
    assert findings(folder, url + tap + case(**stubs)) == []
    [refused] = findings(folder, url + tap + case(**stubs, tools_in_test="sealed"))
    assert refused.startswith("the agent's tools run, and holodeck only replaces their results")
