"""Markdown reports, read as GitHub renders them: short enough, balanced, with links that lead."""

import re
from html.parser import HTMLParser

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from hypothesis import given, settings
from hypothesis import strategies as st

from holodeck.cli.github_actions import step_summary
from holodeck.lib.compare.run_comparison import ComparedRun, compare_runs
from holodeck.lib.reports.against import render_markdown
from holodeck.lib.reports.markdown import MAX_CHARACTERS, SourceLinks
from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.models.test_result import MetricResult, Outcome
from support.payloads import PAYLOADS
from support.results import a_report, a_result

OPTIONS = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_FOOTNOTES
EXTENSIONS = ["table", "autolink", "strikethrough", "tasklist"]
VOID = {"br", "hr", "img", "input"}


class Page(HTMLParser):
    """What a reader finds on the page."""

    def __init__(self, markdown):
        super().__init__(convert_charrefs=True)
        self.open, self.summaries, self.links, self.anchors, self.rows = [], [], [], [], []
        self.text = ""
        text = markdown.encode("utf-8", "backslashreplace").decode()
        self.feed(cmarkgfm.cmark.markdown_to_html_with_extensions(text, OPTIONS, EXTENSIONS))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "a":
            self.links += [found["href"]] if "href" in found else []
            self.anchors += [found["id"]] if "id" in found else []
        if tag == "summary":
            self.summaries.append("")
        if tag == "tr":
            self.rows.append(0)
        if tag in {"td", "th"}:
            self.rows[-1] += 1

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)  # `<hr />` has no end

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if "summary" in self.open:
            self.summaries[-1] += data

    @property
    def targets(self):
        """The anchors in this page that links lead to."""
        return [one[1:] for one in self.links if one.startswith("#")]


def case(number, outcome=Outcome.PASSED, said="hello", **fields):
    passed = outcome is Outcome.PASSED
    row = MetricResult(metric_name="contains", score=float(passed), threshold=1.0, passed=passed)
    return a_result(
        outcome,
        test_name=f"case {number}",
        agent_response=said,
        metric_results=[row.model_copy(update={"reasoning": said})],
        location=f"agent.yaml:{5 * number}:3",
        **fields,
    )


def lost(number):
    return a_result(
        Outcome.AGENT_ERROR,
        test_name=f"lost {number}",
        agent_response=None,
        errors=[f"HTTP 404: model 'm' not found (request id: 9a{number:08})"],
    )


def run_of(total, failed=0, errors=0):
    """A run whose last cases fail, each for a reason of its own, or all with the same error."""
    passed = [case(number) for number in range(total - failed - errors)]
    return [
        *passed,
        *(case(number, Outcome.FAILED, f"bye {number}") for number in range(failed)),
        *(lost(number) for number in range(errors)),
    ]


def require_sound(text):
    page = Page(text)
    assert len(text) <= MAX_CHARACTERS
    assert set(page.targets) <= set(page.anchors)
    assert len(page.anchors) == len(set(page.anchors))
    return page


@pytest.mark.parametrize(
    ("total", "failed", "errors"),
    [(1, 0, 0), (1, 1, 0), (60, 0, 60), (60, 6, 0), (1000, 100, 100), (1000, 1000, 0)],
)
def test_a_report_is_short_balanced_and_its_counts_and_links_are_right(total, failed, errors):
    report = a_report(*run_of(total, failed, errors), origin={"run": "r1"})
    text = generate_markdown_report(report)

    page = require_sound(text)

    shown = len(page.anchors)
    assert f"{total - failed - errors:,} of {total:,} test" in page.text
    if shown < total:
        assert re.search(r"Without the details of .*; holodeck report r1 -o report.html", page.text)
    else:
        assert "Without the details" not in page.text
    causes = failed + bool(errors)
    if causes <= 101:  # each cause is shown with its first case before anything else
        assert text.count("\n### Test: ") == causes
    if shown == total:
        passed = [one for one in page.summaries if one.startswith("✅")]
        assert len(passed) == total - failed - errors
    sentences, _, _ = page.text.partition("Report Summary")  # whose words scripts read
    assert not re.search(r"\b1 (tests|cases|failures|errors)\b", sentences)


def test_sixty_tiny_cases_take_less_than_half_of_the_lines_they_did():
    tiny = generate_markdown_report(a_report(*run_of(60, 6)))

    assert len(tiny.split("\n")) < 1_961 / 2
    assert tiny.index("## Test Results") < 3_500


def test_what_is_left_out_is_what_passed_before_what_failed():
    text = generate_markdown_report(a_report(*run_of(2_000, 50, 50)))

    page = require_sound(text)
    assert len(re.findall(r"\n### Test: ", text)) == 51
    assert len([one for one in page.summaries if "lost" in one]) == 49
    assert re.search(r"Without the details of [\d,]+ passed tests;", page.text)


def test_a_long_answer_is_shortened_before_a_failure_is_left_out():
    long = [case(number, Outcome.FAILED, f"{number}\n" * 20_000) for number in range(20)]
    text = generate_markdown_report(a_report(*long))

    require_sound(text)
    assert len(re.findall(r"\n### Test: ", text)) == 20
    assert "characters are omitted" in text


HOSTILE = st.one_of(st.sampled_from(PAYLOADS), st.text("`|\\<>[]()!#*_&@\n 1a", max_size=400))


@settings(max_examples=15)
@given(texts=st.lists(HOSTILE, min_size=1, max_size=8), times=st.sampled_from([1, 7, 60]))
def test_no_text_makes_a_report_too_long_or_breaks_its_blocks(texts, times):
    results = [
        a_result(
            outcome,
            test_name=text * 20,
            test_input=text * 50,
            agent_response=text * 50,
            errors=[f"{number}{text * 20}"],
            skip_reason=text if outcome is Outcome.SKIPPED else None,
            location=f"{text}:3:4",
        )
        for number in range(times)
        for text in texts
        for outcome in (Outcome.FAILED, Outcome.AGENT_ERROR, Outcome.PASSED, Outcome.SKIPPED)
    ]
    report = a_report(*results, agent_name=texts[0] * 50, notes=[one * 20 for one in texts] * 9)

    page = require_sound(generate_markdown_report(report))

    summary = step_summary(report, SourceLinks("https://github.com/o/r/blob/c/"))
    assert not [one for one in page.links if re.match(r"[\w+.-]+:|//", one)]
    assert {one.split("/o/r/")[0] for one in Page(summary).links} <= {"https://github.com"}


def test_the_step_summary_is_the_first_screen():
    report = a_report(*run_of(1000, 500))

    text = step_summary(report, SourceLinks())

    assert Page(text).targets == []
    assert len(text.split("\n")) < 60
    assert generate_markdown_report(report).startswith(text.split("\n## ")[0][:30])


@pytest.mark.parametrize("total", [3, 1000])
def test_a_comparison_is_short_and_shows_regressions_first(total):
    before = a_report(*run_of(total))
    after = a_report(case(0, Outcome.FAILED, "bye"), *before.results[1:])

    text = render_markdown(compare_runs(ComparedRun(before, "a"), ComparedRun(after, "b")))

    page = require_sound(text)
    assert text.index("## Passed only on A (regressions)\n") < text.index("<details>")
    assert f"Passed on both: {total - 1}" in page.summaries
    assert ("is left out" in page.text) is (total == 1000)
