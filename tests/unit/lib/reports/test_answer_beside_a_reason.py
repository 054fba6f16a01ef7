"""The answer beside a reason is that of the turn that failed, in every format."""

import json
import re
from pathlib import Path

import pytest

from holodeck.cli.github_actions import annotations, step_summary
from holodeck.lib.reports.junit import generate_code_quality_report, generate_junit_report
from holodeck.lib.reports.markdown import SourceLinks
from holodeck.lib.reports.tables import render_notebook_table
from holodeck.lib.reports.terminal import recap_failures
from holodeck.models.results.outcome import CriterionRow
from holodeck.models.test_result import MetricResult, Outcome, Repeats, TurnResult
from support.results import a_report, a_result

FORMATS = {
    "terminal": lambda report: recap_failures(report.results, brief=False),
    "summary": lambda report: step_summary(report, SourceLinks()),
    "junit": lambda report: re.findall(
        "<failure.*?</failure>", generate_junit_report(report), re.DOTALL
    )[0],
    "annotation": lambda report: annotations(report, Path()),
    "codequality": lambda report: json.loads(generate_code_quality_report(report))[0][
        "description"
    ],
    "notebook": render_notebook_table,
}
SHOW_ALL_REASONS = ("terminal", "junit", "annotation", "codequality")


def a_turn(number, outcome=Outcome.UNCHECKED, **fields):
    failed = MetricResult(metric_name="m", score=0, passed=False, reasoning=f"wrong {number}")
    return TurnResult(
        input=f"input {number}",
        agent_response=f"answer {number}",
        outcome=outcome,
        metric_results=[failed] if outcome is Outcome.FAILED else [],
        **fields,
    )


def a_conversation(*failed, **fields):
    outcomes = [Outcome.FAILED if at in failed else Outcome.UNCHECKED for at in (1, 2, 3)]
    turns = [a_turn(at, outcome) for at, outcome in enumerate(outcomes, 1)]
    return a_result(Outcome.FAILED, agent_response="answer 3", turns=turns, **fields)


def answers_in(text):
    return re.findall(r"answer \d", text)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_answer_is_that_of_the_failed_turn_between_unchecked_ones(kind):
    text = FORMATS[kind](a_report(a_conversation(2)))

    assert answers_in(text) == ["answer 2"]


@pytest.mark.parametrize("kind", SHOW_ALL_REASONS)
def test_each_failed_turn_has_its_answer_below_its_reason(kind):
    text = FORMATS[kind](a_report(a_conversation(1, 3)))
    details = text.partition(">")[2] if kind == "junit" else text

    assert re.findall(r"wrong \d|answer \d", details) == [
        "wrong 1", "answer 1", "wrong 3", "answer 3",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
def test_what_failed_in_the_whole_conversation_shows_the_last_answer(kind):
    missed = CriterionRow(criterion="ends well", status="failed")

    text = FORMATS[kind](a_report(a_conversation(criteria=[missed])))

    assert answers_in(text) == ["answer 3"]


@pytest.mark.parametrize("kind", FORMATS)
def test_of_a_repeated_case_the_first_failed_repetition_answers(kind):
    runs = [
        a_result(agent_response="answer 8"),
        a_conversation(2),
        a_result(agent_response="answer 9"),
    ]
    repeats = Repeats(planned=3, needed=3, passed=2, runs=runs)
    repeated = a_result(Outcome.FAILED, agent_response=None, repeats=repeats)

    text = FORMATS[kind](a_report(repeated))

    assert answers_in(text) == ["answer 2"]
    assert "2 of 3 repetitions passed" in text
    assert "repetition 2: turn 2: m: 0.00: wrong 2" in text


def test_a_hidden_reason_does_not_hide_the_answer_that_only_it_quotes():
    reasons = ["one", "two", "three", "got 'hello'"]

    text = recap_failures([a_result(Outcome.FAILED, errors=reasons)], brief=False)

    assert "found: hello" in text
    assert "… and 1 more reason (--verbose shows all)" in text
