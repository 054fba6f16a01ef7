"""Stubs as they are written: what is refused, where they may stand, and which a case gets."""

import pytest

from holodeck.config.checks.agent import check
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError, HoloDeckError

TOOLS = """\
tools:
  - {type: function, name: refund, file: tools.py, function: refund}
  - {type: function, name: get_order, file: tools.py, function: get_order}
"""
CODE = "def refund(id: int): return id\ndef get_order(id: int): return id\n"
CASE = "test_cases: [{input: hi, forbidden_tools: [refund], stubs: %s}]\n"


def load(folder, more):
    folder.write("tools.py", CODE)
    folder.agent(TOOLS + more)
    return ConfigLoader().load_agent_yaml("agent.yaml")


def written(stubs):
    """The stubs as they are written, by tool."""
    return {tool: [one.model_dump(exclude_unset=True) for one in of] for tool, of in stubs.items()}


INVALID = {
    "{refund: [{retuns: 1}]}": "refund[0].retuns: unknown key; did you mean 'returns'?",
    "{refund: [{call: 1}]}": "does nothing; write one of 'returns', 'raises', 'timeout', 'delay'",
    "{refund: [{delay: 1, empty: true}]}": "has 'delay' and 'empty'; write a stub for each",
    "{refund: [{returns: 1, raises: x}]}": "has 'raises', after which nothing returns; remove",
    "{refund: [{call: 0, returns: 1}]}": "refund[0].call: found 0; expected at least 1",
    "{refund: [{call: true, returns: 1}]}": "'call': found true; expected a number",
    "{refund: [{returns: 1}, {call: 2, returns: 3}]}": "'stubs.refund[1]' gets no call",
    "{refund: [{when: {id: {regex: a, fuzzy: b}}, returns: 1}]}": "exactly one of equals, regex",
    "{refund: []}": "refund",
    "{refund: {returns: 1}}": "refund: found",
    "{}": "stubs",
    "none.yaml": "'none.yaml': file not found",
    "{refund: [{empty: false}]}": "empty",
}


@pytest.mark.parametrize(("stubs", "message"), INVALID.items(), ids=INVALID)
def test_an_invalid_stub_is_an_error_with_its_location(folder, stubs, message):
    with pytest.raises(HoloDeckError) as caught:
        load(folder, CASE % stubs)

    assert message in str(caught.value)
    assert str(caught.value).startswith("agent.yaml:7:")


def test_a_case_has_its_own_stubs_then_those_of_its_suite_then_those_of_the_agent(folder):
    folder.write("all.yaml", "get_order: [{returns: 1}]\nrefund: [{delay: 1}]\n")
    folder.write("suites/of.yaml", "refund: [{when: {id: 1}, returns: suite}]\n")
    folder.write(
        "suites/shop.yaml",
        """\
        suite: {name: shop, stubs: of.yaml, tools_in_test: sealed}
        test_cases:
          - {input: a}
          - {input: b, tools_in_test: live, stubs: {refund: [{call: 1, returns: own}]}}
          - {input: c, stubs: {refund: [{returns: own}]}}
          - {input: d, stubs: of.yaml}
        """,
    )
    agent = load(folder, "stubs: all.yaml\nsuites: [{file: suites/shop.yaml}]\n")

    suite, last = {"when": {"id": 1}, "returns": "suite", "optional": True}, {"delay": 1}
    cases = agent.test_cases
    assert [case.tools_in_test for case in cases] == ["sealed", "live", "sealed", "sealed"]
    assert [written(case.stubs)["refund"] for case in cases] == [
        [suite, last],
        [{"call": 1, "returns": "own"}, suite, last],
        [{"returns": "own"}],
        [{"when": {"id": 1}, "returns": "suite"}, suite, last],
    ]
    for case in cases:
        assert written(case.stubs)["get_order"] == [{"returns": 1, "optional": True}]
    assert agent.stubs is None


def test_an_error_in_a_file_of_stubs_has_its_line(folder):
    folder.write("stubs.yaml", "refund:\n  - {returns: 1}\n  - {rises: x}\n")

    with pytest.raises(ConfigError) as caught:
        load(folder, CASE % "stubs.yaml")

    assert str(caught.value).startswith("stubs.yaml:3:6: stubs.refund[1].rises: unknown key")


def test_parameters_fill_stubs(folder):
    stub = '{when: {id: "{{id}}"}, returns: {value: "{{id}}"}}'
    case = (
        f"{{input: 'Refund {{{{id}}}}', parameters: {{id: [7, 8]}}, stubs: {{refund: [{stub}]}}}}"
    )
    agent = load(folder, f"test_cases: [{case}]\n")

    stubs = [written(case.stubs)["refund"] for case in agent.test_cases]
    assert stubs == [[{"when": {"id": value}, "returns": {"value": value}}] for value in (7, 8)]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("stubs: {refnd: [{returns: 1}]}", "unknown tool 'refnd'; did you mean 'refund'? known:"),
        ("stubs: {refund: [{when: {ids: 1}, returns: 1}]}", "no parameter 'ids'; did you mean"),
        ("stubs: {refund: [{when: {id: {regex: '('}}, returns: 1}]}", "stubs.refund[0].when.id"),
        ("tools_in_test: sealed, stubs: {refund: [{delay: 1}]}", "'delay' runs the tool, which is"),
        ("stubs: {refund: [{returns: 7, truncated: 3}]}", "'truncated' changes nothing of 7"),
        ("stubs: {refund: [{returns: [], empty: true}]}", "'empty' changes nothing of []"),
        (
            "expected_tools: [{name: refund, count: 1}], stubs: {refund: [{call: 2, raises: x}]}",
            "the fault 'raises' at call 2 cannot be delivered: 'expected_tools' expects 1 call",
        ),
        ("max_tool_calls: 0, stubs: {refund: [{raises: x}]}", "'max_tool_calls' is 0"),
        ("forbidden_tools: [refund], stubs: {refund: [{raises: x}]}", "forbids 'refund'; write"),
        ("expected_tools: [], stubs: {refund: [{raises: x}]}", "forbids all tools; write"),
    ],
)
def test_validate_finds_what_cannot_be_delivered(folder, keys, message):
    agent = load(folder, f"test_cases: [{{input: hi, {keys}}}]\n")

    errors = [str(found) for found in check(agent) if found.severity == "error"]

    assert len(errors) == 1
    assert message in errors[0]


def test_validate_finds_stubs_of_tools_behind_a_url(folder):
    folder.write(
        "agent.yaml",
        "name: a\nbackend: http://127.0.0.1:9/\ntest_cases:\n"
        "  - {input: hi, tools_in_test: sealed, stubs: {a: [{returns: 1}]}}\n",
    )
    agent = ConfigLoader().load_agent_yaml("agent.yaml")

    places = [found.path for found in check(agent) if found.severity == "error"]

    assert places == ["test_cases[0].stubs", "test_cases[0].tools_in_test"]


def test_a_ready_criterion_says_what_a_judge_checks(folder):
    agent = load(folder, "test_cases: [{input: hi, criteria: [{says_failed: refund}]}]\n")

    [criterion] = agent.test_cases[0].criterion_settings
    assert "After the tool 'refund' has failed, the agent says that" in criterion.text
    assert agent.test_cases[0].all_criteria == [criterion.text]


@pytest.mark.parametrize("keys", ["{required: false}", "{text: a, says_failed: b}"])
def test_a_criterion_has_one_text(folder, keys):
    with pytest.raises(ConfigError, match="write exactly one of 'text' and 'says_failed'"):
        load(folder, f"test_cases: [{{input: hi, criteria: [{keys}]}}]\n")


def test_a_ready_criterion_of_an_unknown_tool_is_an_error(folder):
    agent = load(folder, "test_cases: [{input: hi, criteria: [{says_failed: refnd}]}]\n")

    assert any("unknown tool 'refnd'; did you mean 'refund'?" in str(one) for one in check(agent))
