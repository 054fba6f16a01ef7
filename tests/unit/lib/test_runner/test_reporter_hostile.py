"""Nothing that an agent, a judge or a user writes changes the shape of a Markdown report."""

import re
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from holodeck.lib.reports.markdown import (
    BLOCK_LIMIT,
    INLINE_LIMIT,
    code,
    fenced,
    html_inline,
    inline,
)
from holodeck.lib.support.text import one_line
from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.models.results.outcome import Attempt
from holodeck.models.test_case import ExpectedTool, FileInput
from holodeck.models.test_result import (
    MetricResult,
    Outcome,
    ProcessedFileInput,
    ToolCheck,
    ToolInvocation,
)
from support.payloads import PAYLOADS
from support.results import a_report, a_result

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def everywhere(text):
    """A report that has the text in every field that an agent, a judge or a user fills."""
    path = text.encode("utf-8", "replace").decode().strip() or "x"
    result = a_result(
        Outcome.FAILED,
        test_name=text,
        test_input=text,
        processed_files=[
            ProcessedFileInput(
                original=FileInput(path=path, type="text"),
                markdown_content=text,
                metadata={"key": text},
                error=text,
            )
        ],
        agent_response=text,
        tool_calls=[text, text],
        tool_invocations=[
            ToolInvocation(name=text, args={"q": text}, result=text),
            ToolInvocation(name=text, args={"long": [text] * 200}, error=text),
        ],
        expected_tools=[path, ExpectedTool(name=path, args={"a": text})],
        tools_matched=False,
        tool_checks=[ToolCheck(expectation=text, passed=False, reason=text)],
        metric_results=[
            MetricResult(metric_name=text, score=0.5, threshold=0.9, passed=False, reasoning=text),
            MetricResult(metric_name=f"{text}2", error=text, model_used=text, retry_count=1),
        ],
        ground_truth=text,
        errors=[text],
        attempts=[Attempt(number=1, error=text)],
    )
    return a_report(result, agent_name=text, agent_config_path=text, environment={"os": text})


def skeleton(markdown):
    """What kinds of things the document is made of, in order, without their text."""
    found = []
    for token in MARKDOWN.parse(markdown):
        found.append((token.type, token.tag, token.markup[:3], token.level))
        found += [
            (child.type, child.tag, tuple(sorted(child.attrs.items())))
            for child in token.children or []
            if child.type != "text"
        ]
    return found


def plain(text):
    """Words that are shown in the same way: not at all, on one line, or as a block."""
    if not text.split():
        return text
    is_line = len(text) <= INLINE_LIMIT and one_line(text, INLINE_LIMIT) == text
    return "x" * len(text) if is_line else "x" * (len(text) - 1) + "\n"


@cache
def plain_skeleton(text):
    return skeleton(generate_markdown_report(everywhere(text)))


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_changes_the_shape_of_the_report(payload):
    report = generate_markdown_report(everywhere(payload))

    assert skeleton(report) == plain_skeleton(plain(payload))


@settings(max_examples=60)
@given(
    st.text(
        st.sampled_from("`|\\<>[]()!#*_~-=+&;:@$/.\n\r\t 1ax\x1b\u2028"), min_size=1, max_size=30
    )
)
def test_no_mixture_of_markup_changes_the_shape_of_the_report(text):
    test_no_text_changes_the_shape_of_the_report(text)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_nothing_unseen_or_obeyed_gets_into_a_report(payload):
    report = generate_markdown_report(everywhere(payload))

    assert not re.search(
        r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]",
        report.replace("\t", ""),
    )


@given(st.text(st.characters(codec="ascii", min_codepoint=32, max_codepoint=126), max_size=60))
def test_escaped_text_reads_as_it_was(text):
    rendered = MARKDOWN.parseInline(f"x {inline(text)} y")[0].children

    shown = "".join(child.content for child in rendered).replace("\u200b", "")
    assert [child.type for child in rendered] == ["text"]
    assert shown.split() == ["x", *text.split(), "y"]


def test_ordinary_names_stay_readable_in_the_source():
    assert (
        inline("f1_score of refund-policy (v2.1), ok!") == "f1_score of refund-policy (v2.1), ok!"
    )


@given(st.text(st.sampled_from("`a "), max_size=12))
def test_a_code_span_shows_its_text(text):
    rendered = MARKDOWN.parseInline(f"x {code(text)} y")[0].children

    spans = [child.content.strip() for child in rendered if child.type == "code_inline"]
    assert spans == [" ".join(text.split())]


def test_mentions_issues_and_links_are_not_linked():
    text = "@a me@b #1 GH-2 http://c www.d"

    assert inline(text) == ("@&#8203;a me@&#8203;b \\#&#8203;1 GH&#8203;-2 http&#58;//c www&#46;d")
    assert html_inline(text) == inline(text).replace("\\", "")


def test_a_huge_answer_is_shortened_and_the_report_says_by_how_much():
    report = generate_markdown_report(a_report(a_result(agent_response="word " * 2_000_000)))

    assert len(report) < 2 * BLOCK_LIMIT
    assert "9,996,000 of 10,000,000 characters are omitted;" in report


def test_a_huge_run_of_backticks_stays_in_its_fence():
    lines = fenced("`" * 5 + "\n" + "`" * 9)

    assert lines[0] == "`" * 10 + "text"
    assert lines[-1] == "`" * 10


def test_the_parts_of_a_test_come_in_order():
    report = generate_markdown_report(everywhere("x"))

    wanted = [
        "# Test Report", "## Summary", "### Average", "## Not Passed", "## Test Results",
        "### Test: x", "**Input:**",
        "| File |", "**Response:**", "**Tools called:**", "| Expectation |", "| Call |",
        "| Metric | Score |", "**Expected:**", "- ❌ x\n\n", "| Failed attempt |",
    ]  # fmt: skip
    assert all(report.index(first) < report.index(then) for first, then in pairwise(wanted))
