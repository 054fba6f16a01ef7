"""Slips that ended green without a word in an earlier version, by what they are."""

from mutants.mutant import Mutant, slip
from mutants.projects_checks import (
    CLOSE,
    CONTEXT,
    FORMAT,
    NOT_CONTAINS,
    NUMBER,
    PATTERN,
    REPEATED,
    SCHEMA,
    STRICT_SCHEMA,
    WORD,
)
from mutants.projects_suites import (
    INLINE,
    JSON,
    PLAIN_SCENARIOS,
    SUITES_ALONE,
    TOOLS_IN_CSV,
)
from mutants.projects_tools import FORBIDDEN, FORBIDDEN_ALONE, MATCHER, MISSING, NONE_AT_ALL
from mutants.projects_turns import HTTP, HTTP_NONE, JUDGED, SCRIPT, SECOND_TURN, WHOLE

FILE = "agent.yaml"
_F1 = "- {metric: f1_score, threshold: 0.8}"
_OF_TURN = "\n          - "
_ITEMS = "\n      - delete_order\n      - pay\n"


def _forbidden(name: str) -> Mutant:
    return slip(FORBIDDEN_ALONE, FILE, "[delete_order]", name)


def _renamed(name: str, new: str) -> Mutant:
    content = SUITES_ALONE.files[name].encode()
    return Mutant(SUITES_ALONE.name, name, f"rename as {new}", name, content, new)


ONCE_GREEN = {
    # tools that are forbidden by names that no tool has
    "a star after a forbidden tool": _forbidden('["delete_order*"]'),
    "a wildcard for a forbidden tool": _forbidden('["delete_*"]'),
    "two forbidden tools in one text": _forbidden('["delete_order, pay"]'),
    "two forbidden tools with a semicolon": _forbidden('["delete_order;pay"]'),
    "a blank after a forbidden tool": _forbidden('["delete_order "]'),
    "a line end after a forbidden tool": _forbidden('["delete_order\\n"]'),
    "a space without width after a forbidden tool": _forbidden('["delete_order\u200b"]'),
    "two forbidden tools without a dash between them": slip(
        FORBIDDEN, FILE, "      - pay", "        pay"
    ),
    "quotes inside of quotes": _forbidden("""['"delete_order"']"""),
    "typographic quotes": _forbidden("[“delete_order”]"),
    "parentheses after a forbidden tool": _forbidden("[delete_order()]"),
    "angle brackets around a forbidden tool": _forbidden("[<delete_order>]"),
    "a placeholder for a forbidden tool": _forbidden('["{{tool}}"]'),
    "a placeholder after a forbidden tool": _forbidden('["delete_order{{x}}"]'),
    "a shell variable for a forbidden tool": _forbidden('["$TOOL"]'),
    "a forbidden tool in capitals": _forbidden("[DELETE_ORDER]"),
    "a letter missing in a forbidden tool": _forbidden("[dlete_order]"),
    "a hyphen in a forbidden tool": _forbidden("[delete-order]"),
    "a prefix before a forbidden tool": _forbidden("[functions.delete_order]"),
    "a forbidden tool of a whole conversation with a bar": slip(WHOLE, FILE, "[pay]", '["pay|"]'),
    "a forbidden tool of a script with a semicolon": slip(SCRIPT, FILE, "[pay]", '["pay;a"]'),
    "a forbidden tool behind a URL in capitals": slip(
        HTTP, FILE, "[delete_order]", "[Delete_Order]"
    ),
    "semicolons in a cell of tools": slip(
        TOOLS_IN_CSV, "cases.csv", ',"pay,get_order"', ",pay;get_order"
    ),
    "a hyphen in a cell of tools": slip(
        TOOLS_IN_CSV, "cases.csv", ',"pay,get_order"', ",pay-get_order"
    ),
    "a hyphen for no tools": slip(TOOLS_IN_CSV, "cases.csv", ',"pay,get_order"', ",-"),
    "null for no tools in a cell": slip(TOOLS_IN_CSV, "cases.csv", ',"pay,get_order"', ",null"),
    "n/a for no tools in a cell": slip(TOOLS_IN_CSV, "cases.csv", ',"pay,get_order"', ",N/A"),
    "a prefix in JSON": slip(
        JSON, "cases.json", '["get_order"],\n    "eval', '["functions.get_order"],\n    "eval'
    ),
    # nothing behind a key
    "every forbidden tool commented out": slip(FORBIDDEN, FILE, _ITEMS, "\n"),
    "null for tools that are not to be called": slip(
        NONE_AT_ALL, FILE, "expected_tools: []", "expected_tools:"
    ),
    "every expected tool commented out": slip(
        MISSING, FILE, "\n      - delete_order\n      - send_mail\n", "\n"
    ),
    "an expected tool with arguments commented out": slip(
        MATCHER, FILE, "      - {name: get_order", "#      - {name: get_order"
    ),
    "every metric of a turn commented out": slip(
        SECOND_TURN,
        FILE,
        f"{_OF_TURN}{{metric: contains, value: ORD-9}}{_OF_TURN}{{metric: contains, value: money}}",
        "",
    ),
    "every setting commented out": slip(
        REPEATED, FILE, "  parallel_test_cases: 1\n  repeat: 3\n  min_pass: 3\n", ""
    ),
    "a threshold without a number": slip(CLOSE, FILE, "threshold: 0.8", "threshold: null"),
    "a value that is a comment": slip(WORD, FILE, "value: refund", "value: #refund"),
    "no ground truth for passfail": slip(INLINE, FILE, "ground_truth: hats", "ground_truth: null"),
    "no expected output in a scenario": slip(
        PLAIN_SCENARIOS, "support.yaml", "    expected_output: refund\n", ""
    ),
    # checks that cannot fail
    "f1_score without a threshold": slip(CLOSE, FILE, _F1, "- metric: f1_score"),
    "f1_score with a threshold of 0": slip(CLOSE, FILE, "threshold: 0.8", "threshold: 0"),
    "an endless tolerance": slip(
        NUMBER, FILE, "absolute_tolerance: 0.1", "absolute_tolerance: .inf"
    ),
    "a tolerance of everything": slip(
        NUMBER, FILE, "absolute_tolerance: 0.1", "relative_tolerance: 5"
    ),
    "a pattern that fits everything": slip(PATTERN, FILE, "'ORD-\\d{4}'", "'ORD-\\d{4}|'"),
    "a line end after what must not be said": slip(
        NOT_CONTAINS, FILE, "value: hunter2\n", "value: |\n      hunter2\n"
    ),
    "quotes around what must not be said": slip(
        NOT_CONTAINS, FILE, "value: hunter2", """value: '"hunter2"'"""
    ),
    "a space without width after what must not be said": slip(
        NOT_CONTAINS, FILE, "value: hunter2", 'value: "hunter2\u200b"'
    ),
    "a judge's threshold of 0": slip(JUDGED, FILE, "threshold: 0.6", "threshold: 0"),
    # keywords of JSON schema that are none
    "required misspelt": slip(SCHEMA, FILE, "required: [sku, price]", "requried: [sku, price]"),
    "properties misspelt": slip(FORMAT, FILE, "properties:", "propertes:"),
    "properties in capitals": slip(FORMAT, FILE, "properties:", "PROPERTIES:"),
    "x- before a keyword": slip(SCHEMA, FILE, "required: [sku, price]", "x-required: [sku, price]"),
    "additional_properties": slip(
        STRICT_SCHEMA, FILE, "additionalProperties: false", "additional_properties: false"
    ),
    # keys that another key swallows
    "forbidden tools in the context": slip(
        FORBIDDEN_ALONE, FILE, "    forbidden_tools", "      forbidden_tools"
    ),
    "metrics in the context": slip(
        CONTEXT,
        FILE,
        "    forbidden_tools: [transfer]\n"
        "    evaluations:\n"
        "      - {metric: contains, value: coins}\n"
        "      - {metric: not_contains, value: kim}\n",
        "      evaluations:\n        - {metric: not_contains, value: kim}\n"
        "    forbidden_tools: [transfer]\n",
    ),
    "the answer in the request": slip(
        HTTP_NONE,
        FILE,
        "  answer:\n    tool_calls: calls\n",
        "    answer:\n      tool_calls: calls\n",
    ),
    "no line that says where the calls are": slip(
        HTTP_NONE, FILE, "  answer:\n    tool_calls: calls\n", ""
    ),
    # keys that an agent returns
    **{
        f"an agent that returns {key}": slip(NONE_AT_ALL, "desk.py", '"tool_calls"', f'"{key}"')
        for key in ("tool_call", "toolCalls", "Tool_calls", "tools", "calls", "tool_results")
    },
    # files
    "a suite called .YAML": _renamed("suites/refunds.yaml", "suites/refunds.YAML"),
}
