"""Checks of spans: what passes, what fails, and what cannot be known."""

from itertools import count

import pytest

from holodeck.lib.checks.trace_checks import check_trace
from holodeck.models.cases.matchers import TraceChecks
from holodeck.models.results.evidence import RecordedSpan, Trace

_ids = count(1)
MS = 1_000_000
GAP = "the exporter stopped"


def span(name, begin=0, end=1, status="unset", message="", cut=(), **attributes):
    """A span from `begin` to `end`, in milliseconds; `__` in a keyword is a dot."""
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    return RecordedSpan(
        name=name, span_id=format(next(_ids), "016x"), started_ns=begin * MS, ended_ns=end * MS,
        status=status, status_message=message, attributes=named, cut=list(cut),
    )  # fmt: skip


def tool(name, begin=0, end=1, **more):
    """The span of a tool call, with the attributes of the conventions."""
    named = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": name}
    return span(f"execute_tool {name}", begin, end, **named, **more)


def chat(tokens, begin=0, end=1, **more):
    named = {"gen_ai__operation__name": "chat", "gen_ai__usage__output_tokens": tokens}
    return span("chat gpt", begin, end, **named, **more)


SHOP = [
    span("invoke_agent shop", 0, 100, gen_ai__operation__name="invoke_agent"),
    chat(7, 1, 20),
    tool("search", 20, 40),
    tool("refund", 50, 60, status="error", message="no such order"),
    chat(9, 60, 90),
    span("GET /orders", 30, 35, status="ok", http__status_code=503, tags=["a", "b"]),
]


def row(check, spans=SHOP, problem=""):
    """The only row of a check."""
    [found] = check_trace(TraceChecks(checks=[check]), [Trace(spans=spans, problem=problem)])
    return found


def verdict(*args, **kwargs):
    """True, False, or None for an error."""
    found = row(*args, **kwargs)
    assert found.error is None or not found.passed
    return None if found.error else found.passed


PASS = [
    {"span": "execute_tool", "count": 2},
    {"span": "execute_tool search", "count": 1},
    {"span": "execute_tool *", "count": {"min": 1, "max": 2}},
    {"span": "execute_tool", "where": {"gen_ai.tool.name": "refund"}, "count": 1},
    {"span": "execute_tool", "where": {"gen_ai.tool.name": {"regex": "re.*"}}, "count": 1},
    {"span": "execute_tool", "where": {"gen_ai.tool.name": "delete"}, "count": 0},
    {"span": "deploy", "count": 0},
    {"span": "execute_tool deploy", "count": 0},
    {"span": "execute_tool pay", "count": 0},
    {"span": "chart data", "count": 0},
    {"span": "GET *", "where": {"http.status_code": 503, "tags": ["a", "b"]}, "count": 1},
    {"span": "GET *", "where": {"http.status_code": {"number": 503}}, "status": "ok"},
    {"span": "GET *", "where": {"tags": {"contains": "b"}}, "count": 1},
    {"span": "chat", "status": "unset"},
    {"span": "execute_tool refund", "status": "error"},
    {"span": "execute_tool refund", "after": "execute_tool search"},
    {"span": "chat", "sum": {"of": "gen_ai.usage.output_tokens", "min": 16, "max": 16}},
    {"span": "chat", "max": {"of": "gen_ai.usage.output_tokens", "max": 9}},
    {"span": "chat", "min": {"of": "gen_ai.usage.output_tokens", "min": 7}},
    {"span": "invoke_agent", "max": {"of": "duration_ms", "max": 100}},
]
FAIL = [
    ({"span": "execute_tool", "count": 0}, "2 spans instead of none"),
    ({"span": "execute_tool", "count": 3}, "2 spans instead of 3; spans seen: invoke_agent shop,"),
    ({"span": "chat", "count": {"max": 1}}, "2 spans instead of at most 1"),
    ({"span": "embeddings", "count": {"min": 1}}, "no span is named 'embeddings'; spans seen: inv"),
    (
        {"span": "execute_tool", "where": {"gen_ai.tool.name": "delete"}, "count": 1},
        "no span 'execute_tool' has gen_ai.tool.name='delete'; spans seen: ",
    ),
    ({"span": "execute_tool", "status": "unset"}, "'execute_tool refund' is error: no such order"),
    ({"span": "chat", "status": "ok"}, "is unset; that is what spans without an error have"),
    (
        {"span": "execute_tool search", "after": "execute_tool refund"},
        "no span 'execute_tool refund' had ended when 'execute_tool search' began: it began before",
    ),
    ({"span": "chat", "after": "invoke_agent"}, "it began while it was under way"),
    (
        {"span": "chat", "sum": {"of": "gen_ai.usage.output_tokens", "max": 15}},
        "sum of gen_ai.usage.output_tokens at most 15: it is 16 (2 spans)",
    ),
    ({"span": "chat", "min": {"of": "gen_ai.usage.output_tokens", "min": 8}}, "it is 7"),
    ({"span": "invoke_agent", "max": {"of": "duration_ms", "max": 99}}, "it is 100 (1 span)"),
]


@pytest.mark.parametrize("check", PASS, ids=str)
def test_a_check_that_holds_passes(check):
    assert verdict(check) is True


@pytest.mark.parametrize(("check", "reason"), FAIL, ids=lambda one: str(one)[:70])
def test_a_check_that_does_not_hold_fails_and_says_what_was_seen(check, reason):
    found = row(check)

    assert (found.passed, found.error, found.kind) == (False, None, "trace")
    assert reason in found.reason


@pytest.mark.parametrize("check", [*PASS, *(one for one, _ in FAIL)], ids=str)
def test_without_any_span_every_check_is_an_error(check):
    assert row(check, [], GAP).error == GAP


def test_what_was_not_recorded_is_an_error():
    [found] = check_trace(TraceChecks(require={"chat": 1}), [None])

    assert found.error == "the spans of the agent are unknown, because they were not recorded"


CERTAIN = {
    "count: min 1": ({"span": "chat", "count": {"min": 1}}, True),
    "count: max 1": ({"span": "chat", "count": {"max": 1}}, False),
    "wrong status": ({"span": "execute_tool", "status": "unset"}, False),
    "max too high": ({"span": "chat", "max": {"of": "duration_ms", "max": 1}}, False),
    "min too low": ({"span": "chat", "min": {"of": "duration_ms", "min": 25}}, False),
}
OPEN = [
    {"span": "chat", "count": 2},
    {"span": "chat", "count": {"min": 3}},
    {"span": "deploy", "count": 0},
    {"span": "deploy", "status": "ok"},
    {"span": "chat", "status": "unset"},
    {"span": "execute_tool search", "after": "execute_tool refund"},
    {"span": "execute_tool refund", "after": "execute_tool search"},
    {"span": "chat", "sum": {"of": "duration_ms", "max": 1}},
    {"span": "chat", "max": {"of": "duration_ms", "max": 1000}},
]


@pytest.mark.parametrize("name", CERTAIN)
def test_what_no_further_span_could_change_is_decided_by_those_that_were_seen(name):
    check, expected = CERTAIN[name]

    assert verdict(check, problem=GAP) is expected


@pytest.mark.parametrize("check", OPEN, ids=str)
def test_what_further_spans_could_change_is_an_error_if_some_may_be_missing(check):
    assert row(check, problem=GAP).error == GAP


@pytest.mark.parametrize(
    ("check", "error"),
    [
        (
            {"span": "chat", "max": {"of": "gen_ai.usage.output_token", "max": 1}},
            (
                "'chat gpt' has no attribute 'gen_ai.usage.output_token'; did you mean"
                " 'gen_ai.usage.output_tokens'?"
            ),
        ),
        (
            {"span": "chat", "max": {"of": "gen_ai.operation.name", "max": 1}},
            "'gen_ai.operation.name' of 'chat gpt' is no number: 'chat'",
        ),
    ],
    ids=["missing", "text"],
)
def test_a_number_that_a_span_does_not_have_is_an_error(check, error):
    assert row(check).error == error


def test_a_value_that_was_cut_is_not_compared():
    spans = [span("chat", prompt="x" * 10, cut=["prompt"])]

    found = row({"span": "chat", "where": {"prompt": "y"}, "count": 0}, spans)

    assert found.error == "'prompt' of 'chat' is too long to compare; it was cut"


WHERE = {"gen_ai.tool.name": "refund"}
RED = {"span": "execute_tool", "where": WHERE, "count": 0}
MISTAKES = {
    "right": RED,
    "span in the plural": {**RED, "span": "execute_tools"},
    "span in capitals": {**RED, "span": "Execute_Tool"},
    "span with a hyphen": {**RED, "span": "execute-tool"},
    "swapped letters": {**RED, "span": "exceute_tool"},
    "unknown operation": {"span": "execute_toool refund", "count": 0},
    "only the tool": {"span": "refund", "count": 0},
    "only part of the name": {"span": "execute_tool refund now", "count": 0},
    "attribute": {**RED, "where": {"gen_ai.tool.nme": "refund"}},
    "other attribute": {**RED, "where": {"tool.name": "refund"}},
    "value": {**RED, "where": {"gen_ai.tool.name": "refunds"}},
    "value in capitals": {**RED, "where": {"gen_ai.tool.name": "Refund"}},
    "operation before a tool": {"span": "execute_tol refund", "count": 0},
    "span with a prefix": {**RED, "span": "functions.execute_tool"},
    "span with a rule": {**RED, "span": "contains:execute_tool"},
    "span in a list": {**RED, "span": "execute_tool, chat"},
    "value in a list": {**RED, "where": {"gen_ai.tool.name": ["refund"]}},
    "number for text": {**RED, "where": {"gen_ai.tool.name": 0}},
    "number as text": {"span": "GET *", "where": {"http.status_code": "503"}, "count": 0},
    "maximum": {**RED, "span": "execute_tols", "count": {"max": 0}},
    "wrong order": {"span": "execute_tool search", "after": "execute_tool refnd"},
    "status of nothing": {"span": "execute_tol", "status": "unset"},
    "sum of nothing": {"span": "chats", "sum": {"of": "duration_ms", "max": 1000}},
    "sum of another": {"span": "chat", "sum": {"of": "gen_ai.usage.output_tokns", "max": 1}},
    "status for text": {"span": "execute_tool", "status": "ok"},
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_slip_in_a_check_that_fails_does_not_make_it_pass(name):
    assert not row(MISTAKES[name]).passed


SLIPS = {
    "only the tool": (
        "no span is named 'refund', but one is named 'execute_tool refund'; write that name, or a"
        " glob, to say which is meant"
    ),
    "attribute": (
        "no span 'execute_tool' has an attribute 'gen_ai.tool.nme', so that nothing can be said"
        " about it; did you mean 'gen_ai.tool.name'?"
    ),
    "value": (
        "no span has 'gen_ai.tool.name' 'refunds', but one has 'refund'; write that value, or"
        " '{equals: refunds}' if another is meant"
    ),
    "maximum": "no span is named 'execute_tols'; did you mean 'execute_tool'? If not, write a glob",
}


@pytest.mark.parametrize("name", SLIPS)
def test_an_error_says_which_slip_is_likely(name):
    assert row(MISTAKES[name]).error == SLIPS[name]


def test_a_similar_value_is_meant_if_it_is_written_as_a_matcher():
    where = {"gen_ai.tool.name": {"equals": "refunds"}}

    assert verdict({"span": "execute_tool", "where": where, "count": 0}) is True


@pytest.mark.parametrize("name", ["shop_refund", "refund_v2", "Shop-Refund"])
def test_a_span_of_a_tool_with_nearly_the_name_is_not_decided(name):
    spans, by_name = [tool(name)], {"span": "execute_tool refund", "count": 0}
    by_value = {"span": "execute_tool", "where": {"gen_ai.tool.name": "refund"}, "count": 0}

    assert repr(f"execute_tool {name}") in row(by_name, spans).error
    assert repr(name) in row(by_value, spans).error
    assert verdict(by_name, [tool("refund_history")]) is True


def test_an_operation_is_not_taken_for_a_part_of_a_name():
    assert verdict({"span": "chat", "count": 0}, [span("POST /chat")]) is True


@pytest.mark.parametrize(
    "attributes",
    [
        {"openinference.span.kind": "TOOL"},
        {"traceloop.span.kind": "tool"},
        {"langwatch.span.type": "tool"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_the_operations_of_other_conventions_have_the_same_words(attributes):
    made = span("search").model_copy(update={"attributes": attributes})

    assert verdict({"span": "execute_tool", "count": 1}, [made]) is True


def test_the_spans_of_all_turns_count_for_a_case():
    traces = [Trace(spans=[chat(1)]), Trace(spans=[chat(2)])]

    [found] = check_trace(TraceChecks(require={"chat": 2}), traces)

    assert (found.passed, found.reason) == (True, "2 spans")


def test_a_turn_without_spans_leaves_open_what_it_could_change():
    traces = [Trace(spans=[chat(1)]), Trace(problem=GAP)]
    checks = TraceChecks(require={"chat": 1}, checks=[{"span": "deploy", "count": 0}])

    least, none = check_trace(checks, traces)

    assert (least.passed, none.error) == (True, GAP)


def test_a_span_whose_clock_was_set_back_has_no_duration():
    early = span("chat gpt", 20, 10, gen_ai__operation__name="chat")

    found = row({"span": "chat", "max": {"of": "duration_ms", "max": 100}}, [early])

    assert found.error == "'chat gpt' ends before it begins: the clock was set back"
