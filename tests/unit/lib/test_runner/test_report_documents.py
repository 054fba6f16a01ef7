"""Whole Markdown reports, as a reader gets them.

Each stands in `reports/`. Where a report is meant to change, change its file, too:
`python tests/unit/lib/test_runner/test_report_documents.py` writes them all anew.
"""

from pathlib import Path

import pytest

from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.models.cases.messages import EarlierMessage
from holodeck.models.results.evidence import evidence
from holodeck.models.results.origin import Selection
from holodeck.models.results.outcome import Attempt, ConversationEnd, CriterionRow, ModelCost
from holodeck.models.test_case import ExpectedTool, FileInput
from holodeck.models.test_result import (
    MetricResult,
    Outcome,
    ProcessedFileInput,
    Repeats,
    Spread,
    ToolCheck,
    ToolInvocation,
    TurnResult,
)
from holodeck.models.token_usage import Cost, TokenUsage
from support.results import a_report, a_result

FOLDER = Path(__file__).parent / "reports"
BLEU = MetricResult(
    metric_name="bleu", score=0.25, threshold=0.5, passed=False, evaluation_time_ms=3
)
JUDGED = MetricResult(
    metric_name="tone",
    score=0.75,
    raw_score=4,
    raw_scale="1-5",
    passed=True,
    threshold=0.7,
    retry_count=2,
    model_used="openai/m",
    judge_calls=3,
    judge_failed=1,
    judge_tokens=TokenUsage.of(70, 7),
    judge_ms=900,
    evaluation_time_ms=950,
    reasoning="It is kind.\nAnd brief.",
)
BROKEN = MetricResult(metric_name="rouge", passed=False, error="no words", evaluation_time_ms=1)
REPORTED = MetricResult(metric_name="length", score=1.0)
OPTIONAL = BLEU.model_copy(update={"metric_name": "f1", "required": False})
UNSURE = MetricResult(metric_name="close", score=0.5, threshold=0.5, inconclusive=True)
LONG = {"text": "x" * 130}
CALLS = [
    ToolInvocation(name="find", args={"q": "order"}, result={"id": 1}, duration_ms=12),
    ToolInvocation(name="pay", args=LONG, error="refused"),
    ToolInvocation(name="read", result="y" * 118),
    ToolInvocation(name="read", result="y" * 119),
]
CHECKS = [
    ToolCheck(expectation="find", passed=True),
    ToolCheck(expectation="no call of pay", passed=False, reason="'pay' is forbidden, but was"),
]
EXPECTED = ["find", ExpectedTool(name="pay", args={"n": 1}, count=2), ExpectedTool(name="x")]


def a_file(path="a.txt", **fields):
    original = FileInput(path=path, type="text")
    return ProcessedFileInput(original=original, markdown_content="text", **fields)


def one_input():
    """A case of one input that fails for several reasons, and one that answered nothing."""
    failed = a_result(
        Outcome.FAILED,
        processed_files=[
            a_file(processing_time_ms=5, metadata={"pages": 2, "title": "A"}),
            a_file("b.txt", error="it is broken"),
        ],
        tool_calls=[one.name for one in CALLS],
        tool_invocations=CALLS,
        evidence=evidence(tool_calls="backend"),
        expected_tools=EXPECTED,
        tools_matched=False,
        tool_checks=CHECKS,
        metric_results=[BLEU, JUDGED, BROKEN, REPORTED, OPTIONAL, UNSURE],
        ground_truth="hello there",
        errors=["the answer is cut off"],
        attempts=[
            Attempt(number=1, error="503", retry_after_ms=1500),
            Attempt(number=2, error="reset"),
        ],
        token_usage=TokenUsage.of(10, 5),
        tries=[a_result(Outcome.AGENT_ERROR, errors=["no connection"])],
        cost=Cost(currency="USD", total=0.5, agent=0.25, judges=0.25),
    )
    empty = a_result(
        Outcome.AGENT_ERROR,
        test_name="says nothing",
        agent_response="",
        expected_tools=[],
        evidence=evidence(tool_calls="backend"),
    )
    none = a_result(
        Outcome.UNCHECKED,
        test_name=None,
        agent_response=None,
        tool_calls=["t"] * 51,
        tool_invocations=[ToolInvocation(name="t")] * 51,
        evidence=evidence(tool_calls="backend"),
    )
    return a_report(failed, empty, none)


def conversations():
    """A conversation of turns, a judged one, one that broke off, and one with earlier messages."""
    bad = {"tool_checks": CHECKS, "metric_results": [BLEU], "ground_truth": "hello"}
    bad["evidence"] = evidence(tool_calls="backend")
    turns = [
        TurnResult(input="hi", outcome=Outcome.PASSED, agent_response="hello"),
        TurnResult(input="pay", outcome=Outcome.FAILED, tool_invocations=CALLS[:1], **bad),
    ]
    held = a_result(
        Outcome.FAILED,
        test_name="held",
        turns=turns,
        metric_results=[REPORTED],
        evidence=evidence(tool_calls="backend"),
        tool_checks=CHECKS[:1],
        tools_matched=True,
        ground_truth="paid",
    )
    judged = a_result(
        Outcome.FAILED,
        test_name="judged",
        turns=[turns[0].model_copy(update={"outcome": None})],
        messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}],
        criteria=[
            CriterionRow(criterion="is kind", status="passed", reasoning="it says hello"),
            CriterionRow(criterion="pays", status="failed"),
            CriterionRow(criterion="is brief", status="inconclusive"),
            CriterionRow(criterion="rhymes", status="failed", required=False),
        ],
        ending=ConversationEnd(code="max_turns", passed=False),
        judge_cost=ModelCost(model="openai/m", calls=2, failed=1, tokens=TokenUsage.of(20, 2)),
        simulator_cost=ModelCost(calls=1, tokens=TokenUsage.of(5, 1), kept=3),
    )
    broken = a_result(
        Outcome.METRIC_ERROR,
        test_name="broken",
        turns=[turns[0].model_copy(update={"outcome": None})],
        ending=ConversationEnd(code="judge_error", reasoning="no verdict", broke=True),
    )
    stopped = a_result(
        Outcome.AGENT_ERROR,
        test_name="stopped",
        agent_response=None,
        turns=[TurnResult(input="hi", errors=["it broke"])],
    )
    later = a_result(
        test_name="later",
        history=[EarlierMessage(role="user", content="Where?")],
        ending=ConversationEnd(code="succeeded", reasoning="all is said", passed=True),
    )
    return a_report(held, judged, broken, stopped, later)


def repeated():
    """Cases that are repeated, and one that passed at its second try."""
    runs = [
        a_result(execution_time_ms=10),
        a_result(Outcome.FAILED, execution_time_ms=20, metric_results=[BLEU]),
    ]
    spread = [
        Spread(metric_name="bleu", scored=2, mean=0.5, least=0.25, most=0.75, deviation=0.35355),
        Spread(metric_name="tone"),
    ]
    most = Repeats(
        planned=3, needed=1, passed=1, interval=(0.0945, 0.9055), spread=spread, runs=runs
    )
    return a_report(
        a_result(Outcome.FLAKY, test_name="most", repeats=most),
        a_result(
            Outcome.AGENT_ERROR,
            test_name="never begun",
            repeats=Repeats(planned=2, needed=2, passed=0),
        ),
        a_result(Outcome.FLAKY, test_name="second try", tries=[runs[1]]),
    )


def a_large_run():
    """What stands before the results, and lists that are cut."""
    failed = [
        a_result(Outcome.FAILED, test_name=f"no {number}", errors=[f"wrong {number}"])
        for number in range(101)
    ]
    report = a_report(
        *failed,
        a_result(Outcome.METRIC_ERROR, test_name="odd", metric_results=[BROKEN, JUDGED]),
        a_result(Outcome.UNCHECKED, test_name="open"),
        a_result(Outcome.SKIPPED, test_name="later", agent_response=None),
        a_result(test_name="costly", metric_results=[BLEU, JUDGED]),
        planned_tests=80,
        interrupted=True,
        stopped="the run's time is over",
        selection=Selection(total=90, selected=80, deselected=10, how="--tag a", plan="p1"),
        notes=["two cases were left out"],
        environment={"os": "Linux", "python": "3.11"},
    )
    chances = {number: number / 20 for number in range(1, 8)}
    summary = report.summary.model_copy(
        update={
            "cost": Cost(currency="EUR", total=None, agent=0.1, judges=None, unknown=["openai/m"]),
            "token_usage": TokenUsage.of(100, 50),
            "judge_calls": 4,
            "judge_usage": TokenUsage.of(40, 4),
            "simulator_calls": 2,
            "simulator_usage": TokenUsage.of(20, 2),
            "pass_at_k": chances,
            "pass_all_k": {1: 0.5},
        }
    )
    return report.model_copy(update={"summary": summary})


def nothing():
    """A run without a test."""
    return a_report(stopped="nothing is left", planned_tests=0)


DOCUMENTS = [one_input, conversations, repeated, a_large_run, nothing]


def text_of(document):
    """The report; of the large run what stands before the results."""
    text = generate_markdown_report(document())
    return text.partition("\n---\n")[0] if document is a_large_run else text


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.__name__)
def test_a_report_reads_as_it_is_written_down(document):
    written = (FOLDER / f"{document.__name__}.md").read_text(encoding="utf-8")

    assert text_of(document) == written


if __name__ == "__main__":
    for one in DOCUMENTS:
        (FOLDER / f"{one.__name__}.md").write_text(text_of(one), encoding="utf-8")
