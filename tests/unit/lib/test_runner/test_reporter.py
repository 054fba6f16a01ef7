"""The sections of a Markdown report."""

import re

import pytest

from holodeck.lib.reports.markdown import SourceLinks
from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.models.results.evidence import evidence
from holodeck.models.results.outcome import Attempt
from holodeck.models.test_case import ExpectedTool
from holodeck.models.test_result import MetricResult, Outcome, ToolCheck, ToolInvocation
from holodeck.models.token_usage import TokenUsage
from support.results import a_report, a_result

UNCHECKED_REASON = (
    "nothing is checked: add evaluations, criteria, expected_tools or forbidden_tools"
)


def test_the_fields_of_holodeck_stand_where_scripts_look_for_them():
    row = MetricResult(metric_name="bleu", score=0.5)
    spent = a_result(token_usage=TokenUsage.of(1000, 5), metric_results=[row])
    results = [spent, a_result(Outcome.FAILED), a_result(Outcome.SKIPPED)]
    environment = {"os": "Linux", "python_version": "Python 3.12", "model": "m"}
    report = a_report(*results, environment=environment, origin={"run": "r1"})

    text = generate_markdown_report(report)

    assert text.partition("## Not Passed")[0] == (
        "# Test Report: helper\n"
        "\n"
        "❌ **1 of 2 tests passed** (50.0%): 1 failed, 1 skipped\n"
        "\n"
        "**Configuration:** `agent.yaml`\n"
        "**Generated:** 2026-01-01T00:00:00Z\n"
        "**HoloDeck Version:** 1.2.3\n"
        "**Environment:** Python 3.12 on Linux · model: m\n"
        "**Run:** `r1`\n"
        "\n"
        "## Summary\n"
        "\n"
        "| Metric | Value |\n"
        "| --- | --- |\n"
        "| Total Tests | 3 |\n"
        "| Passed | 1 |\n"
        "| Failed | 1 |\n"
        "| Pass Rate | 50.00% |\n"
        "| Total Duration | 3702ms (3.7s) |\n"
        "| Time | 1 ms |\n"
        "| Tokens | 1,005 (1,000 prompt, 5 completion) |\n"
        "\n"
        "### Average Metric Scores\n"
        "\n"
        "| Metric | Average Score | Scale | Scored |\n"
        "| --- | --- | --- | --- |\n"
        "| bleu | 0.50 | 0-1 | 1 |\n"
        "\n"
    )
    assert "\n---\n\n## Test Results\n\n" in text
    assert text.endswith(
        "\n---\n\n## Report Summary\n\n"
        "✅ **1 tests passed** | ❌ **1 tests failed** | **Pass Rate: 50.00%**\n"
    )


def section(report, title):
    """The lines of a section that are not empty."""
    lines = report.split("\n")
    start = lines.index(title) + 1
    end = next((i for i in range(start, len(lines)) if lines[i].startswith(("#", "---"))), None)
    return [line for line in lines[start:end] if line]


def test_what_did_not_pass_comes_first_with_reason_answer_and_links():
    report = generate_markdown_report(
        a_report(
            a_result(),
            a_result(Outcome.AGENT_ERROR, test_name=None),
            a_result(Outcome.UNCHECKED, test_name="loose"),
            a_result(
                Outcome.FAILED,
                test_name="ends [well]",
                errors=["no", "why"],
                location="my agent.yaml:4:7",
            ),
        )
    )

    assert section(report, "## Not Passed: 3 Tests") == [
        "- ❌ no *(and 1 more reason)*",
        "  - [ends \\[well\\]](#test-4) ([my agent.yaml:4](my%20agent.yaml#L4))",
        "  - Answer: hello",
        "- ⚠️ no reason is known",
        "  - ['hi'](#test-2)",
        f"- ❔ {UNCHECKED_REASON}",
        "  - [loose](#test-3)",
    ]
    assert '<a id="test-4"></a>\n\n### Test: ends \\[well\\] ❌ FAILED' in report


def test_sixty_failures_of_one_cause_are_one_entry():
    lost = [
        a_result(
            Outcome.AGENT_ERROR,
            test_name=f"n{number}",
            errors=[f"HTTP 404: model 'm' not found (request id: 8f{number:06})"],
            location=f"agent.yaml:{number + 1}:3",
        )
        for number in range(60)
    ]
    report = generate_markdown_report(a_report(*lost))

    links = [f"[n{n - 1}](#test-{n}) ([agent.yaml:{n}](agent.yaml#L{n}))" for n in (1, 2, 3)]
    assert section(report, "## Not Passed: 60 Tests") == [
        "- ⚠️ **60 ×** HTTP 404: model 'm' not found (request id: 8f000000)",
        f"  - {', '.join(links)}, and 57 more",
    ]
    assert re.findall("### Test: (.*)", report) == ["n0 ⚠️ ERROR"]
    assert "<summary>59 more tests that did not pass for these reasons</summary>" in report


GITHUB = "https://github.com/o/r/blob/abc/"


@pytest.mark.parametrize(
    ("links", "origin", "target"),
    [
        (SourceLinks(), {"folder": "/w/r/sub", "checkout": "/w/r"}, "my/agent.yaml#L4"),
        (SourceLinks(GITHUB, "/w"), {"folder": "/w/r/sub"}, f"{GITHUB}r/sub/my/agent.yaml#L4"),
        (
            SourceLinks(GITHUB, "/w"),
            {"folder": "/w/r/sub", "checkout": "/w/r"},
            f"{GITHUB}sub/my/agent.yaml#L4",
        ),
    ],
    ids=["beside", "workspace", "checkout"],
)
def test_a_place_links_to_its_line_in_the_working_folder_or_the_checkout(links, origin, target):
    result = a_result(location="my/agent.yaml:4:7")

    shown = links.link(a_report(result, origin=origin), result)

    assert shown == f"[my/agent.yaml:4]({target})"


@pytest.mark.parametrize("location", ["/other/agent.yaml:4:7", "../agent.yaml:4:7", "python"])
def test_a_place_outside_of_the_checkout_has_no_link(location):
    result = a_result(location=location)

    shown = SourceLinks(GITHUB, "/w").link(a_report(result, origin={"folder": "/w"}), result)

    assert shown == location.removesuffix(":7")


def test_a_run_where_all_passed_lists_no_failures():
    assert "Not Passed" not in generate_markdown_report(a_report(a_result()))


def test_failures_are_open_and_the_others_folded():
    report = generate_markdown_report(
        a_report(*(a_result(outcome, test_name=str(outcome)) for outcome in Outcome))
    )

    assert re.findall("(?m)^### Test: (.*)$", report) == [
        "failed ❌ FAILED",
        "agent_error ⚠️ ERROR",
        "metric_error ⚠️ ERROR",
        "unchecked ❔ UNCHECKED",
    ]
    assert re.findall("<details><summary><a.*></a>(.*)</summary>", report) == [
        "🎲 flaky",
        "⏭️ skipped: not today",
        "✅ passed",
    ]


def test_passing_tests_can_be_left_out_and_the_report_says_so():
    results = [a_result(Outcome.FAILED), a_result(), a_result(Outcome.FLAKY)]
    report = a_report(*results, origin={"run": "r1"}, agent_config_path="my agent.yaml")

    text = generate_markdown_report(report, "failures")

    assert re.findall("<details><summary><a.*></a>(.*)</summary>", text) == ["🎲 greets"]
    assert (
        "Without the details of 1 passed test;"
        " `holodeck report r1 --agent 'my agent.yaml' -o report.html` shows them.\n"
    ) in text


def test_an_interrupted_run_says_so_on_top():
    report = generate_markdown_report(a_report(a_result(), interrupted=True, planned_tests=10))

    assert report.split("\n")[4] == "**Interrupted: 1 of 10 tests ran.**"


def test_averages_say_how_many_scores_they_are_made_of():
    rows = [
        MetricResult(metric_name="bleu", score=0.5),
        MetricResult(metric_name="bleu", score=0.0),
        MetricResult(metric_name="bleu", error="boom"),
        MetricResult(metric_name="meteor", error="boom"),
    ]
    report = generate_markdown_report(a_report(a_result(Outcome.METRIC_ERROR, metric_results=rows)))

    assert section(report, "### Average Metric Scores")[2:] == [
        "| bleu | 0.25 | 0-1 | ± 0.25 | 2 | 1 |",
        "| meteor | not computed | 0-1 | – | 0 | 1 |",
    ]


def test_a_metric_without_a_score_is_not_shown_as_zero():
    rows = [
        MetricResult(metric_name="bleu", score=0.0, threshold=0.5, passed=False),
        MetricResult(metric_name="f1", score=0.25),
        MetricResult(metric_name="rouge", error="no data", retry_count=2, evaluation_time_ms=7),
    ]
    report = generate_markdown_report(a_report(a_result(Outcome.FAILED, metric_results=rows)))

    assert section(report, "### Test: greets ❌ FAILED")[-5:] == [
        "| Metric | Score | Threshold | Status | Reason | Retries | Time |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| bleu | 0 | 0.5 | ❌ fail |  | – | – |",
        "| f1 | 0.25 | – | reported only |  | – | – |",
        "| rouge | not computed | – | ⚠️ error | no data | 2 | 7ms |",
    ]


def test_a_long_reason_stands_below_the_table():
    row = MetricResult(metric_name="tone", score=0.5, passed=True, reasoning="It is kind.\nShort.")
    report = generate_markdown_report(a_report(a_result(metric_results=[row])))

    assert "| tone | 0.5 | ✅ pass |\n\n**tone, reason:**\n\n```text\nIt is kind.\n" in report


def test_no_answer_and_an_empty_answer_are_told_apart():
    silent = generate_markdown_report(a_report(a_result(agent_response=None)))
    empty = generate_markdown_report(a_report(a_result(agent_response="")))

    assert "**Response:** *(none)*" in silent
    assert "**Response:** *(empty)*" in empty


def test_tools_are_shown_with_arguments_results_and_the_reason_of_a_mismatch():
    result = a_result(
        Outcome.FAILED,
        tool_calls=["search"],
        tool_invocations=[
            ToolInvocation(name="search", args={"q": "a|b"}, result=["x"], duration_ms=3)
        ],
        expected_tools=["fetch", ExpectedTool(name="search", args={"q": 1}, count=2)],
        evidence=evidence(tool_calls="backend"),
        tools_matched=False,
        tool_checks=[ToolCheck(expectation="fetch is called", passed=False, reason="never called")],
    )
    report = generate_markdown_report(a_report(result))

    assert section(report, "### Test: greets ❌ FAILED")[3:] == [
        "- **Tools called:** search",
        '- **Tools expected:** fetch, search with {"q": 1}, 2 times',
        "- **Match:** ❌ fail",
        "| Expectation | Status | Reason |",
        "| --- | --- | --- |",
        "| fetch is called | ❌ fail | never called |",
        "| Call | Tool | Arguments | Result | Time |",
        "| --- | --- | --- | --- | --- |",
        '| 1 | search | {"q": "a&#124;b"} | \\["x"\\] | 3ms |',
    ]


def test_an_empty_list_of_expected_tools_reads_as_a_ban():
    result = a_result(
        expected_tools=[], tools_matched=True, evidence=evidence(tool_calls="backend")
    )

    report = generate_markdown_report(a_report(result))

    assert "- **Tools expected:** no tool may be called" in report
    assert "- **Tools called:** none" in report


def test_tool_calls_that_nobody_saw_are_not_reported_as_none():
    check = ToolCheck(expectation="no tool call", passed=False, error="unknown")
    result = a_result(Outcome.METRIC_ERROR, expected_tools=[], tool_checks=[check])

    report = generate_markdown_report(a_report(result))

    assert section(report, "### Test: greets ⚠️ ERROR")[3:] == [
        "- **Tools called:** unknown",
        "- **Tools expected:** no tool may be called",
        "- **Match:** ⚠️ unknown",
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

    assert "| 1 | 429 | 200ms |\n| 2 | 500 | – |\n" in report


def test_a_report_without_tests_is_whole():
    report = generate_markdown_report(a_report())

    assert "❌ **No test ran**\n" in report


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
    assert "| Judges | 2 calls, 120 tokens |\n" in report


def test_a_verdict_too_close_to_call_is_none():
    row = MetricResult(metric_name="polite", score=0.52, threshold=0.5, inconclusive=True)

    report = generate_markdown_report(
        a_report(a_result(Outcome.METRIC_ERROR, metric_results=[row]))
    )

    assert "| polite | 0.52 | 0.5 | ⚠️ inconclusive |\n" in report
    assert "polite: 0.52 (threshold 0.50) is inconclusive" in report


def test_what_makes_a_judge_hard_to_trust_stands_at_the_top():
    report = a_report(a_result(Outcome.PASSED)).model_copy(update={"notes": ["the judge is small"]})

    assert "**Note: the judge is small**" in generate_markdown_report(report).partition("##")[0]


def test_what_changed_since_the_baseline_is_a_list_of_its_own():
    note = "Compared with base.json: 1 regression\ngreets: regression\na new case passes: *x*"
    text = generate_markdown_report(a_report(a_result(), notes=[note]))

    assert (
        "**Compared with base.json: 1 regression**\n\n- greets: regression\n"
        "- a new case passes: \\*x\\*\n\n**Configuration:**"
    ) in text
