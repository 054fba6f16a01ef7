"""Keys that check spans: what is refused, and what is found before a run."""

import pytest

from holodeck.config.checks.agent import check
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError

CASE = "test_cases:\n  - input: hi\n    "
CHECK = CASE + "trace: {checks: [{span: chat, "
HTTP = "name: desk\nbackend: {type: http, url: 'http://x'}\n"
SHOP = "name: desk\nbackend: 'shop:answer'\n"


def load(folder, more, head=HTTP):
    folder.write("shop.py", "def answer(message, context):\n    return message\n")
    folder.write("agent.yaml", head + more)
    return ConfigLoader().load_agent_yaml("agent.yaml")


def findings(folder, more, head=SHOP):
    return [str(one) for one in check(load(folder, more, head))]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (CASE + "trace:", "test_cases[0].trace: has no value"),
        (CASE + "trace: {}", "'trace' checks nothing; write 'require' or 'checks'"),
        (CASE + "trace: {require: {}, checks: []}", "is empty and checks nothing"),
        (CASE + "trace: {requires: {chat: 1}}", "unknown key; did you mean 'require'?"),
        (CASE + "trace: {check: []}", "unknown key; did you mean 'checks'?"),
        (CASE + "traces: {require: {chat: 1}}", "unknown key; did you mean 'trace'?"),
        (CASE + "trace: {require: {chat: 0}}", "require.chat: found 0; expected at least 1"),
        (CASE + "trace: {require: [chat]}", "require: found"),
        (CASE + "trace: {require: {chat: 1}, settle: 31}", "settle: found 31; expected at most 30"),
        (CHECK[:-2] + "}]}", "checks[0]: checks nothing; write one of 'count', 'status', 'after'"),
        (CHECK + "where: {a: 1}}]}", "checks nothing; write one of 'count'"),
        (CHECK + "count: 1, status: ok}]}", "has 'count' and 'status'; write an item of the list"),
        (CHECK + "count: -1}]}", "expected at least 0"),
        (CHECK + "count: true}]}", "found true"),
        (CHECK + "count: {}}]}", "count: checks nothing; write 'min', 'max', or both"),
        (CHECK + "count: {min: 0}}]}", "min: found 0; expected at least 1"),
        (CHECK + "count: {min: 3, max: 2}}]}", "no count is at least 3 and at most 2"),
        (CHECK + "cuont: 0}]}", "unknown key; did you mean 'count'?"),
        (CHECK + "count: 0, wehre: {a: 1}}]}", "unknown key; did you mean 'where'?"),
        (CHECK + "count: }]}", "checks nothing; write one of 'count'"),
        (CHECK + "status: eror}]}", "status: found 'eror'; did you mean 'error'?"),
        (CHECK + "sum: {of: a}}]}", "sum: checks nothing; write 'min', 'max', or both"),
        (CHECK + "sum: {max: 5}}]}", "sum.of: this key is missing"),
        (CHECK + "max: {of: a, most: 5}}]}", "unknown key"),
        (CHECK + "max: {of: a, max: .inf}}]}", "max.max: found"),
        (CHECK + "count: 0, where: {a: {euqals: 1}}}]}", "where.a.euqals: unknown key"),
        (CHECK + "count: 0, where: {a: {regex: x, fuzzy: y}}}]}", "a matcher has exactly one of"),
        (CHECK + "count: 0, where: {a: }}]}", "where.a: has no value"),
        (CHECK + "count: 0, where: {a: ' '}}]}", "where.a: has no value; write one"),
        (CHECK + "count: 0, where: {a: {}}}]}", "a matcher has exactly one of"),
        (CHECK + "count: 0, where: {a: 'del*'}}]}", "where.a: 'del*' is compared literally"),
        (CHECK + "count: 0, where: {a: '{tool}'}}]}", "nothing fills the placeholder '{tool}'"),
        (CHECK[:-6] + "'<%= x %>', count: 0}]}", "'span': nothing fills the placeholder"),
        (CHECK + "after: '$NAME'}]}", "'after': nothing fills the placeholder '$NAME'"),
        (CASE + "trace: {require: {chat: 1}, checks: []}", "'checks' is empty and checks nothing"),
        (CASE + "trace: {require: {}, checks: [{span: a, count: 1}]}", "'require' is empty"),
        (CASE + "context: {trace: {require: {chat: 1}}}", "'trace' has no effect in 'context'"),
    ],
)
def test_a_key_that_checks_nothing_or_the_wrong_thing_is_refused(folder, more, message):
    with pytest.raises(ConfigError) as caught:
        load(folder, more)

    assert message in str(caught.value)


TRACED = "trace: {require: {chat: 1}}"
ELSEWHERE = (
    "{type: http, url: 'http://x'}",
    "{type: a2a, url: 'http://x'}",
    "{type: mcp, url: 'http://x'}",
)


@pytest.mark.parametrize("backend", ELSEWHERE, ids=["http", "a2a", "mcp"])
@pytest.mark.parametrize(
    ("more", "path"),
    [
        (CASE + TRACED, "test_cases[0].trace"),
        ("test_cases:\n  - turns: [{input: a, " + TRACED + "}]", "test_cases[0].turns[0].trace"),
    ],
    ids=["case", "turn"],
)
def test_a_service_needs_a_port_to_which_it_can_send_its_spans(folder, more, path, backend):
    head = f"name: desk\nbackend: {backend}\n"

    [finding] = findings(folder, more, head)

    assert f"error: {path}: the agent behind the URL does not know where to send" in finding
    assert findings(folder, more, head + "observability: {receiver: {port: 4318}}\n") == []


def test_an_invalid_pattern_is_found(folder):
    more = CHECK + "count: 0, where: {a: {regex: '('}}}]}"

    [finding] = findings(folder, more)

    assert "test_cases[0].trace.checks[0].where.a.regex: '(' is not a regular" in finding


@pytest.mark.parametrize(
    "more",
    [
        CASE + TRACED,
        CHECK + "count: 0, where: {a: 1, b: {contains: x}}}]}",
        CHECK + "after: search}], settle: 0}",
        "test_cases:\n  - turns: [{input: a, " + TRACED + "}]",
        "test_cases:\n  - script: [{user: a}, agent, {check: {" + TRACED + "}}]",
    ],
)
def test_a_case_with_checks_of_spans_alone_is_complete(folder, more):
    assert findings(folder, more) == []
