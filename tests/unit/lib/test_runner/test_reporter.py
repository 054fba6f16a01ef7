"""The sections of a Markdown report."""

import re

from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.models.evidence import evidence
from holodeck.models.test_case import ExpectedTool
from holodeck.models.test_result import Attempt, MetricResult, Outcome, ToolCheck, ToolInvocation
from holodeck.models.token_usage import TokenUsage
from support.results import a_report, a_result

UNCHECKED_REASON = (
    "nothing is checked: add evaluations, criteria, expected_tools or forbidden_tools"
)


def test_the_report_opens_with_its_facts_on_lines_of_their_own():
    report = generate_markdown_report(a_report(a_result(), environment={"os": "Linux"}))

    assert report.startswith(
        "# Test Report: helper\n"
        "\n"
        "- **Configuration:** `agent.yaml`\n"
        "- **Generated:** 2026-01-01T00:00:00Z\n"
        "- **HoloDeck Version:** 1.2.3\n"
        "- **Environment:** os: Linux\n"
    )


def test_the_summary_is_a_table():
    spent = a_result(token_usage=TokenUsage.of(10, 5))
    report = generate_markdown_report(a_report(spent, a_result(Outcome.UNCHECKED)))

    assert section(report, "## Summary") == [
        "| Metric | Value |",
        "| --- | --- |",
        "| Total Tests | 2 |",
        "| Passed | 1 |",
        "| Failed | 1 (of these Unchecked: 1) |",
        "| Pass Rate | 50.00% |",
        "| Total Duration | 2468ms (2.5s) |",
        "| Wall Time | 1ms (0.0s) |",
        "| Tokens | 15 (10 prompt, 5 completion) |",
    ]


def section(report, title):
    """The lines of a section that are not empty."""
    lines = report.split("\n")
    start = lines.index(title) + 1
    end = next((i for i in range(start, len(lines)) if lines[i].startswith(("#", "---"))), None)
    return [line for line in lines[start:end] if line]


def test_what_did_not_pass_comes_first_with_reason_and_link():
    report = generate_markdown_report(
        a_report(
            a_result(),
            a_result(Outcome.FAILED, test_name="ends [well]", errors=["no answer"]),
            a_result(Outcome.AGENT_ERROR, test_name=None),
            a_result(Outcome.UNCHECKED, test_name="loose"),
        )
    )

    assert section(report, "## Not Passed") == [
        "- ❌ [ends \\[well\\]](#test-2): no answer",
        "- ⚠️ [Unnamed Test](#test-3)",
        f"- ❔ [loose](#test-4): {UNCHECKED_REASON}",
    ]
    assert report.index("## Not Passed") < report.index("## Summary")
    assert '<a id="test-2"></a>\n\n### Test: ends \\[well\\] ❌ FAILED' in report


def test_a_run_where_all_passed_lists_no_failures():
    assert "## Not Passed" not in generate_markdown_report(a_report(a_result()))


def test_the_status_is_in_the_heading():
    report = generate_markdown_report(
        a_report(*(a_result(outcome, test_name=str(outcome)) for outcome in Outcome))
    )

    assert re.findall("(?m)^### Test: (.*)$", report) == [
        "passed ✅ PASSED",
        "failed ❌ FAILED",
        "agent_error ⚠️ ERROR",
        "metric_error ⚠️ ERROR",
        "unchecked ❔ UNCHECKED",
        "flaky 🎲 FLAKY",
        "skipped ⏭️ SKIPPED",
    ]


def test_an_interrupted_run_says_so_on_top():
    report = generate_markdown_report(a_report(a_result(), interrupted=True, planned_tests=10))

    assert report.split("\n")[2] == "**Interrupted: 1 of 10 tests ran.**"


def test_averages_say_how_many_scores_they_are_made_of():
    rows = [
        MetricResult(metric_name="bleu", score=0.5),
        MetricResult(metric_name="bleu", score=0.0),
        MetricResult(metric_name="bleu", error="boom"),
        MetricResult(metric_name="meteor", error="boom"),
    ]
    report = generate_markdown_report(a_report(a_result(Outcome.METRIC_ERROR, metric_results=rows)))

    assert section(report, "### Average Metric Scores")[2:] == [
        "| bleu | 0.25 | ± 0.25 | 0-1 | 2 | 1 |",
        "| meteor | not computed | – | 0-1 | 0 | 1 |",
    ]


def test_a_metric_without_a_score_is_not_shown_as_zero():
    rows = [
        MetricResult(metric_name="bleu", score=0.0, threshold=0.5, passed=False),
        MetricResult(metric_name="f1", score=0.25),
        MetricResult(metric_name="rouge", error="no data", retry_count=2, evaluation_time_ms=7),
    ]
    report = generate_markdown_report(a_report(a_result(Outcome.FAILED, metric_results=rows)))

    assert section(report, "#### Evaluation Metrics")[2:] == [
        "| bleu | 0 | 0.5 | ❌ fail | – | – |",
        "| f1 | 0.25 | – | reported only | – | – |",
        "| rouge | not computed | – | ⚠️ error | – | 7ms |",
    ]
    assert section(report, "##### rouge")[:4] == ["⚠️ Error:", "```text", "no data", "```"]
    assert section(report, "##### rouge")[4:] == ["Retries: 2"]


def test_no_answer_and_an_empty_answer_are_told_apart():
    silent = generate_markdown_report(a_report(a_result(agent_response=None)))
    empty = generate_markdown_report(a_report(a_result(agent_response="")))

    assert section(silent, "#### Agent Response") == ["*(no response)*"]
    assert section(empty, "#### Agent Response") == ["*(empty response)*"]


def test_tools_are_shown_with_arguments_results_and_the_reason_of_a_mismatch():
    result = a_result(
        Outcome.FAILED,
        tool_calls=["search"],
        tool_invocations=[
            ToolInvocation(name="search", args={"q": "a|b"}, result=["x"], duration_ms=3)
        ],
        expected_tools=["fetch", ExpectedTool(name="search", args={"q": 1}, count=2)],
        evidence=evidence("backend"),
        tools_matched=False,
        tool_checks=[ToolCheck(expectation="fetch is called", passed=False, reason="never called")],
    )
    report = generate_markdown_report(a_report(result))

    assert section(report, "#### Tool Usage") == [
        "- **Tools Called:** search",
        '- **Expected Tools:** fetch, search with {"q": 1}, 2 times',
        "- **Match Status:** ❌ fail",
        "| Expectation | Status | Reason |",
        "| --- | --- | --- |",
        "| fetch is called | ❌ fail | never called |",
        "| Call | Tool | Arguments | Result | Time |",
        "| --- | --- | --- | --- | --- |",
        '| 1 | search | {"q": "a&#124;b"} | \\["x"\\] | 3ms |',
    ]


def test_an_empty_list_of_expected_tools_reads_as_a_ban():
    result = a_result(expected_tools=[], tools_matched=True, evidence=evidence("backend"))

    report = generate_markdown_report(a_report(result))

    assert "- **Expected Tools:** no tool may be called" in report
    assert "- **Tools Called:** none" in report


def test_tool_calls_that_nobody_saw_are_not_reported_as_none():
    check = ToolCheck(expectation="no tool call", passed=False, error="unknown")
    result = a_result(Outcome.METRIC_ERROR, expected_tools=[], tool_checks=[check])

    assert section(generate_markdown_report(a_report(result)), "#### Tool Usage") == [
        "- **Tools Called:** unknown",
        "- **Expected Tools:** no tool may be called",
        "- **Match Status:** ⚠️ unknown",
        "| Expectation | Status | Reason |",
        "| --- | --- | --- |",
        "| no tool call | ⚠️ error | unknown |",
    ]


def test_long_arguments_are_shown_in_full_below_the_table():
    call = ToolInvocation(name="write", args={"text": "word " * 100})
    report = generate_markdown_report(a_report(a_result(tool_invocations=[call])))

    assert "Call 1, arguments:\n\n```json\n{\n" in report


def test_a_thousand_calls_do_not_flood_the_report():
    calls = [ToolInvocation(name="spin", args={})] * 1000
    result = a_result(tool_calls=["spin"] * 1000, tool_invocations=calls)
    report = generate_markdown_report(a_report(result))

    assert "*… and 950 more calls.*" in report
    assert len(report) < 5_000


def test_attempts_that_did_not_work_are_shown():
    attempts = [Attempt(number=1, error="429", retry_after_ms=200), Attempt(number=2, error="500")]
    report = generate_markdown_report(a_report(a_result(attempts=attempts)))

    assert section(report, "#### Attempts")[-2:] == ["| 1 | 429 | 200ms |", "| 2 | 500 | – |"]


def test_the_last_line_sums_up():
    report = generate_markdown_report(a_report(a_result(), a_result(Outcome.FAILED)))

    assert report.endswith(
        "## Report Summary\n\n✅ **1 test passed** | ❌ **1 test failed** | **Pass Rate: 50.00%**\n"
    )


def test_a_report_without_tests_is_whole():
    report = generate_markdown_report(a_report())

    assert "*No test was run.*" in report
    assert "| Total Tests | 0 |" in report


def test_a_judged_metric_shows_what_was_asked_of_whom():
    row = MetricResult(
        metric_name="fluency",
        score=0.75,
        raw_score=4,
        raw_scale="1-5",
        threshold=0.5,
        passed=True,
        model_used="openai/wise",
        judge_calls=2,
        judge_tokens=TokenUsage.of(100, 20),
        judge_ms=300,
        evaluation_time_ms=310,
    )

    report = generate_markdown_report(a_report(a_result(Outcome.PASSED, metric_results=[row])))

    assert (
        "| fluency | 0.75 (4 of 1-5) | 0.5 | ✅ pass | openai/wise | 310ms | 2 | 120 | 300ms |"
        in report
    )
    assert "| Judges | 2 calls, 120 tokens |" in report


def test_a_verdict_too_close_to_call_is_none():
    row = MetricResult(metric_name="polite", score=0.52, threshold=0.5, inconclusive=True)

    report = generate_markdown_report(
        a_report(a_result(Outcome.METRIC_ERROR, metric_results=[row]))
    )

    assert "| polite | 0.52 | 0.5 | ⚠️ inconclusive | – | – |" in report
    assert "polite: 0.52 (threshold 0.50) is inconclusive" in report


def test_what_makes_a_judge_hard_to_trust_stands_at_the_top():
    report = a_report(a_result(Outcome.PASSED)).model_copy(update={"notes": ["the judge is small"]})

    assert "**Note: the judge is small**" in generate_markdown_report(report).partition("##")[0]
