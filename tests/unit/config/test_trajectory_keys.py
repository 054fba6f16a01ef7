"""Keys that check the trajectory: what is refused, what is found, and how files write them."""

import json

import pytest

from holodeck.config.checks.agent import check
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError
from holodeck.models.test_case import TestCase

CASE = "test_cases:\n  - input: hi\n    "
TOOL = "expected_tools: [{name: a, "
JUDGED = "evaluations: {model: {provider: local}}\n"
SIMULATED = JUDGED + "test_cases:\n  - simulate: {situation: x}\n    criteria: [ok]\n    "
STEPS = "[{user: a}, agent, {user: b}, agent, succeed]"
MIXED = SIMULATED + "script: [user, agent, {proceed: {turns: 2}}, judge]\n    max_turns_to_done: "
HEAD = """\
name: desk
backend:
  {type: http, url: 'http://x', request: {q: '{messages}'}, answer: {tool_calls: t, agents: a}}
"""


def load(folder, more, head=HEAD):
    folder.write("agent.yaml", head + more)
    return ConfigLoader().load_agent_yaml("agent.yaml")


def findings(folder, more):
    return [str(one) for one in check(load(folder, more))]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("tool_order: strict", "tool_order: found 'strict'; did you mean 'exact'? expected exact,"),
        ("tool_order: Exact", "tool_order: found 'Exact'; did you mean 'exact'? expected"),
        ("tool_order: in-order", "tool_order: found 'in-order'; did you mean 'in_order'?"),
        ("tool_order: unordered", "did you mean 'any_order' with 'max_tool_calls'? expected"),
        ("tool_order: superset", "'tool_order: superset' needs 'expected_tools'"),
        (
            "{input: hi, expected_tools: [], tool_order: exact}",
            "'tool_order: exact' needs 'expected_tools'",
        ),
        ("max_tool_calls: -1", "max_tool_calls: found -1; expected at least 0"),
        ("max_tool_calls: true", "found true; expected a number"),
        ("max_tool_calls: few", "max_tool_calls: found 'few'; expected a whole number"),
        ("max_tool_calls:", "test_cases[0].max_tool_calls: has no value"),
        ("no_repeated_calls: sometimes", "found 'sometimes'; expected true or false"),
        ("handoffs: []", "'handoffs: []' checks nothing; name agents or remove it"),
        ("handoffs:", "test_cases[0].handoffs: has no value"),
        ("handoffs: [a, b, b]", "'handoffs[2]' repeats 'b': consecutive messages of an agent"),
        ("handoffs: billing", "handoffs: found 'billing'; expected a list"),
        ("max_turns_to_done: 3", "'input' says how many there are; write 'simulate', or remove it"),
        ("{turns: [{input: a}], max_turns_to_done: 3}", "and 'turns' says how many there are"),
        (f"{{script: {STEPS}, max_turns_to_done: 1}}", "and 'script' says how many there are"),
        ("context: {max_tool_calls: 3}", "'max_tool_calls' has no effect in 'context'"),
        ("context: {handoffs: [a]}", "'handoffs' has no effect in 'context'"),
        ("max_tools: 3", "unknown key"),
        ("max_tool_call: 3", "unknown key; did you mean 'max_tool_calls'?"),
        ("handoff: [a]", "unknown key; did you mean 'handoffs'?"),
        (TOOL + "result: {number: x}}]", "expected_tools[0].result"),
        (
            TOOL + "result: {contains: a, regex: b}}]",
            "exactly one of equals, regex, number, fuzzy,",
        ),
        (TOOL + "result: {contains: ''}}]", "expected text that is not blank"),
        (TOOL + "result: }]", "expected_tools[0].result: has no value"),
        (TOOL + "error: }]", "expected_tools[0].error: has no value"),
        (TOOL + "agent: }]", "expected_tools[0].agent: has no value"),
        (TOOL + "error: broken}]", "expected_tools[0].error: found 'broken'; expected true or"),
        (TOOL + "results: x}]", "unknown key; did you mean 'result'?"),
    ],
)
def test_a_key_that_checks_nothing_or_the_wrong_thing_is_refused(folder, more, message):
    written = f"test_cases:\n  - {more}" if more.startswith("{") else CASE + more
    with pytest.raises(ConfigError) as caught:
        load(folder, written)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (CASE + "expected_tools: [a, b]\n    tool_order: exact\n    max_tool_calls: 1",
         "max_tool_calls: cannot be met: 'expected_tools' needs 2 tool calls"),
        (CASE + TOOL + "count: 3}]\n    max_tool_calls: 2",
         "max_tool_calls: cannot be met: 'expected_tools' needs 3 tool calls"),
        (CASE + "expected_tools: [a]\n    max_tool_calls: 0", "cannot be met"),
        (CASE + TOOL + "result: {regex: '(?s).*'}}]", "regex: '(?s).*' matches every text"),
        (CASE + TOOL + "result: {regex: '('}}]", "expected_tools[0].result.regex:"),
        (CASE + "expected_tools: [{name: S-pay}]\n    forbidden_tools: [pay]",
         "'S-pay' is both expected and forbidden"),
        (SIMULATED + "max_turns_to_done: 10", "cannot fail: the agent has at most 10 turns"),
        (SIMULATED + "max_turns: 3\n    max_turns_to_done: 3", "at most 3 turns; write less"),
        (MIXED + "3", "max_turns_to_done: cannot fail: the agent has at most 3 turns"),
    ],
)  # fmt: skip
def test_a_check_that_cannot_fail_or_cannot_pass_is_found(folder, more, message):
    [finding] = [one for one in findings(folder, more) if ": error: " in one]

    assert message in finding


@pytest.mark.parametrize(
    "more",
    [
        CASE + "max_tool_calls: 3",
        CASE + "no_repeated_calls: true",
        CASE + "handoffs: [triage, billing, triage]",
        CASE + "expected_tools: [a, b]\n    tool_order: subset\n    max_tool_calls: 1",
        CASE + "expected_tools: [a, b]\n    max_tool_calls: 1",
        CASE + TOOL + "result: {regex: 'a.*'}, error: false, agent: x}]",
        SIMULATED + "max_turns_to_done: 9",
        MIXED + "2",
        "test_cases:\n  - turns: [{input: a, handoffs: [x]}]",
        "test_cases:\n  - script: [{user: a}, agent, {check: {max_tool_calls: 1}}]",
    ],
)
def test_a_case_with_one_of_these_checks_is_complete(folder, more):
    assert findings(folder, more) == []


ROW = {
    "input": "hi",
    "expected_tools": ["a", "b"],
    "tool_order": "any_order",
    "max_tool_calls": 3,
    "no_repeated_calls": True,
    "handoffs": ["triage", "billing"],
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cases.jsonl", json.dumps(ROW)),
        ("cases.json", json.dumps([ROW])),
        (
            "cases.csv",
            f'{",".join(ROW)}\nhi,"a,b",any_order,3,true,"triage,billing"\n',
        ),
    ],
)
def test_data_files_hold_the_checks_of_a_trajectory(folder, name, text):
    folder.write(name, text)

    [case] = load(folder, f"test_cases_file: {name}\n").test_cases

    assert case == TestCase(**ROW)


def test_python_takes_the_same_checks():
    case = TestCase(
        input="hi",
        expected_tools=[{"name": "a", "result": {"contains": "x"}, "error": False, "agent": "b"}],
        tool_order="exact",
        handoffs=["b"],
    )

    assert case.order == "exact"
    assert case.expected_tools[0].result_matcher().contains == "x"
    with pytest.raises(ValueError, match="'handoffs: \\[\\]' checks nothing"):
        TestCase(input="hi", handoffs=[])


@pytest.mark.parametrize("more", ["handoffs: [a, b]", "expected_tools: [{name: t, agent: a}]"])
def test_the_built_in_agent_hands_off_to_no_other(folder, more):
    head = "name: desk\nmodel: {provider: local}\ninstructions: {inline: Be brief.}\n"

    found = [str(one) for one in check(load(folder, CASE + more, head))]

    assert any("the built-in agent is the only one" in one for one in found)


def test_a_url_that_names_no_agents_is_told_about_its_handoffs(folder):
    head = HEAD.replace(", agents: a", "")

    [finding] = [str(one) for one in check(load(folder, CASE + "handoffs: [a]", head))]

    assert "'agents' is missing, so the agents that spoke are unknown" in finding


APPROVAL = "expect_approval: {tool: send_email, then: approve}"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{tool: send_email}", "expect_approval.then"),
        ("{tool: send_email, then: maybe}", "found 'maybe'; expected 'approve' or 'reject'"),
        ("[{then: approve}]", "expect_approval[0].tool"),
        ("[]", "expect_approval"),
        ("{tool: send_email, arg: {to: a}, then: approve}", "did you mean 'args'?"),
    ],
)
def test_an_approval_that_cannot_be_expected_is_an_error(folder, written, message):
    with pytest.raises(ConfigError) as raised:
        load(folder, f"{CASE}expect_approval: {written}\n")

    assert message in str(raised.value)


def test_an_approval_of_a_backend_that_reports_none_is_an_error(folder):
    [finding] = findings(folder, f"{CASE}{APPROVAL}\n")

    assert "test_cases[0].expect_approval" in finding
    assert "reports no approvals" in finding


def test_an_approval_in_a_step_of_a_script_comes_too_late(folder):
    folder.write("mailer.py", "def agent(message, context): ...\n")
    script = f"test_cases:\n  - script: [{{user: a}}, agent, {{check: {{{APPROVAL}}}}}]\n"
    head = "name: a\nbackend: 'mailer:agent'\n"

    [finding] = [str(one) for one in check(load(folder, script, head))]

    assert "script[2].check.expect_approval" in finding
    assert "after the turn" in finding
