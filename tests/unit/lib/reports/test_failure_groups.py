"""Failures are grouped by cause: what differs from call to call is ignored, and nothing else."""

from itertools import chain
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.cli.github_actions import MOST_ANNOTATIONS, annotations, step_summary
from holodeck.lib.reports.failures import (
    NOT_PASSED,
    distinct_reasons,
    group_by_check,
    group_failures,
)
from holodeck.lib.reports.markdown import SourceLinks
from holodeck.models.results.outcome import RaisedError
from holodeck.models.test_result import MetricResult, Outcome, Repeats, TurnResult
from support.results import a_report, a_result

NUMBERS = st.integers(1, 99_999)
SECONDS = st.floats(0, 999).map("{:.2f}".format)
VARYING = {
    "uuid": st.uuids().map(str),
    "request": st.text("abcXYZ0189", min_size=21, max_size=24).map("request id: 9{}".format),
    "openai": st.text("abcXYZ0189", min_size=22, max_size=24).map("chatcmpl-9{}".format),
    "attempts": st.integers(2, 20).map("(after {} attempts)".format),
    "attempt": st.tuples(NUMBERS, NUMBERS).map(lambda n: f"attempt {n[0]} of {n[1]}"),
    "duration": st.one_of(SECONDS.map("in {} s".format), SECONDS.map("in {}ms".format)),
    "time": st.datetimes().map(lambda one: f"at {one.isoformat(timespec='seconds')}Z"),
    "address": st.integers(2**20, 2**40).map("object at {:#x}".format),
    "tokens": st.tuples(NUMBERS, NUMBERS).map(lambda n: f"Used {n[0]}, Requested {n[1]}"),
}
WORDS = st.text("abc '\"/:.-_", min_size=1, max_size=12)


def an_error(text, **fields):
    return a_result(Outcome.AGENT_ERROR, errors=[text], **fields)


def names_of(groups):
    return [[one.test_name for one in group.results] for group in groups]


@pytest.mark.parametrize("kind", VARYING)
@given(data=st.data())
def test_errors_that_differ_in_what_varies_are_one_group(kind, data):
    template = f"HTTP 503 from http://127.0.0.1:4000: {{}}{data.draw(WORDS)}"
    found = data.draw(st.lists(VARYING[kind], min_size=2, max_size=4))

    groups = group_failures([an_error(template.format(one + " ")) for one in found])

    assert [len(group.results) for group in groups] == [len(found)]


@given(st.lists(WORDS, min_size=1, max_size=6))
def test_errors_in_other_words_are_never_one_group(texts):
    groups = group_failures(an_error(one) for one in texts)

    assert [group.first.errors[0] for group in groups] == list(dict.fromkeys(texts))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("HTTP 404: model 'm' not found", "HTTP 429: model 'm' not found"),
        ("model gpt-4o-2024-08-06 not found", "model gpt-4o-2024-11-20 not found"),
        ("no connection to 127.0.0.1:4000", "no connection to 127.0.0.1:4001"),
        ("unknown tool 'call_customer_service_2'", "unknown tool 'call_customer_service_3'"),
        ("KeyError: 'tea'", "KeyError: 'coffee'"),
        ("limit 8000 tokens", "limit 16000 tokens"),
        ("agent.py:12: boom", "agent.py:13: boom"),
    ],
)
def test_what_names_the_cause_is_never_ignored(one, other):
    assert len(group_failures([an_error(one), an_error(other)])) == 2


def test_the_same_error_raised_at_another_line_is_another_cause():
    raised = [
        RaisedError(error="KeyError: 'tea'", file="agent.py", line=line, function="answer")
        for line in (3, 7)
    ]

    groups = group_failures(an_error("KeyError: 'tea'", raised=[one]) for one in raised)

    assert len(groups) == 2


def test_numbers_that_a_failed_check_quotes_are_its_cause():
    rows = [
        MetricResult(metric_name="contains", score=0, passed=False, reasoning=f"got {said!r}")
        for said in ("wait 5 s", "wait 6 s", "attempt 1", "attempt 2", str(UUID(int=7)))
    ]

    groups = group_failures(a_result(Outcome.FAILED, metric_results=[row]) for row in rows)

    assert len(groups) == len(rows)


def test_it_does_not_matter_in_which_turn_or_how_often_an_error_came():
    down = "no answer within {} s"
    runs = [an_error(down.format(number)) for number in range(3)]
    late = [
        TurnResult(input="hi", outcome=Outcome.PASSED),
        TurnResult(
            input="hi",
            outcome=Outcome.METRIC_ERROR,
            metric_results=[MetricResult(metric_name="m", error="no answer within 3 s")],
        ),
    ]
    of_turns = [
        a_result(Outcome.METRIC_ERROR, turns=late),
        a_result(Outcome.METRIC_ERROR, turns=late[1:]),
    ]
    repeated = a_result(
        Outcome.AGENT_ERROR, repeats=Repeats(planned=3, needed=3, passed=0, runs=runs)
    )

    groups = group_failures([an_error(down.format(60)), *of_turns, repeated])

    assert [group.numbers for group in groups] == [(1, 4), (2, 3)]


OUTCOMES = st.sampled_from(list(Outcome))
RESULTS = st.lists(st.tuples(OUTCOMES, st.sampled_from(["a", "b 1 s", "b 2 s"])), max_size=12)


@given(RESULTS, st.randoms())
def test_each_failure_is_in_one_group_whatever_the_order(drawn, random):
    results = [
        a_result(outcome, test_name=f"{number}", errors=[text])
        for number, (outcome, text) in enumerate(drawn)
    ]
    groups = group_failures(results)
    shuffled = random.sample(results, len(results))

    failed = [one.test_name for one in results if one.outcome in NOT_PASSED]
    names = names_of(groups)
    assert sorted(chain.from_iterable(names)) == sorted(failed)
    assert [one[0] for one in names] == [
        name for name in failed if any(name == one[0] for one in names)
    ]
    assert {frozenset(one) for one in names} == {
        frozenset(one) for one in names_of(group_failures(shuffled))
    }


def test_a_reason_that_a_case_has_twice_is_told_once():
    result = a_result(Outcome.FAILED, errors=["no", "yes", "no"])

    assert list(map(str, distinct_reasons(result))) == ["no", "yes"]


def a_miss(metric, number, **fields):
    """A failed case whose reason differs from the others' in its numbers only."""
    row = MetricResult(
        metric_name=metric,
        score=number / 100,
        threshold=0.7,
        passed=False,
        reasoning=f"expected {number}, got {number * 80}",
    )
    location = f"agent.yaml:{number}:5"
    name = f"{metric} {number}"
    return a_result(
        Outcome.FAILED, test_name=name, metric_results=[row], location=location, **fields
    )


def test_reasons_that_differ_in_their_numbers_are_of_one_check():
    misses = [a_miss("numeric", number) for number in (41, 43)]
    other = a_miss("bleu", 41)

    groups = group_by_check(group_failures([other, *misses]))

    assert [(group.checks, group.count) for group in groups] == [("numeric", 2), ("bleu", 1)]


def test_errors_of_one_line_of_code_are_listed_together():
    raised = [
        RaisedError(error=f"KeyError: '{key}'", file="agent.py", line=line, function="answer")
        for key, line in (("tea", 3), ("milk", 3), ("tea", 7))
    ]

    groups = group_by_check(group_failures(an_error(one.error, raised=[one]) for one in raised))

    assert [(group.checks, group.count) for group in groups] == [
        ("KeyError at agent.py:3", 2),
        ("KeyError at agent.py:7", 1),
    ]


def many_failures_and_an_error():
    """More failed checks than there are places, each failed with several numbers, and an error."""
    misses = [
        a_miss(f"metric{metric:02}", metric * 10 + number)
        for metric in range(1, 15)
        for number in (1, 2, 3)
    ]
    return a_report(*misses, an_error("HTTP 500", test_name="down", location="agent.yaml:7:1"))


def test_errors_have_a_place_in_the_summary_whatever_number_of_checks_failed():
    text = step_summary(many_failures_and_an_error(), SourceLinks())

    assert "- ⚠️ HTTP 500\n  - down ([agent.yaml:7](agent.yaml#L7))" in text
    assert text.count("- ❌ **3 ×** metric") == 9
    assert "- … and 5 more reasons (15 tests)" in text


def test_errors_have_a_place_among_the_annotations_whatever_number_of_checks_failed():
    lines = annotations(many_failures_and_an_error(), Path()).splitlines()

    assert len(lines) == MOST_ANNOTATIONS
    assert any("title=down::HTTP 500" in line for line in lines)
    assert "metric01: also in 2 tests: metric01 12 (agent.yaml:12), metric01 13" in lines[0]
    assert "title=metric02" in next(line for line in lines[1:] if "metric" in line)


def test_a_check_that_fails_often_is_one_entry_with_its_count_and_places():
    misses = [a_miss("numeric", number) for number in range(1, 15)]

    text = step_summary(a_report(*misses, a_miss("bleu", 20)), SourceLinks())

    assert "## Not Passed: 15 Tests for 2 Reasons" in text
    entry = text.partition("- ❌ **14 ×** numeric\n")[2].partition("\n- ❌")[0].splitlines()
    assert entry[0] == "  - numeric: 0.01 (threshold 0.70): expected 1, got 80"
    assert entry[1] == "    - numeric 1 ([agent.yaml:1](agent.yaml#L1))"
    places = [f"numeric {at} ([agent.yaml:{at}](agent.yaml#L{at}))" for at in range(10, 15)]
    assert entry[-1] == f"  - … and {', '.join(places)}"


def test_without_other_checks_a_check_has_all_places():
    text = step_summary(a_report(*(a_miss("m", number) for number in range(1, 13))), SourceLinks())

    assert text.count("  - m: 0.") == 10
    assert "  - … and m 11 ([agent.yaml:11](agent.yaml#L11)), m 12" in text
