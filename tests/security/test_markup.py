"""Reports rendered as GitHub renders them: nothing in them is made by what they report."""

import json
import re
from html.parser import HTMLParser

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options

from holodeck.lib.reports.formats import generate_json_report
from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.models.test_result import MetricResult, Outcome, TestReport, ToolInvocation
from support.payloads import COMMANDS, PAYLOADS
from support.results import a_report, a_result

# Without GitHub's filter of tags and with raw HTML, so that nothing but our escaping protects.
OPTIONS = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_FOOTNOTES
EXTENSIONS = ["table", "autolink", "strikethrough", "tasklist"]


def a_call(**fields):
    return [ToolInvocation(**{"name": "look", "args": {"q": "x"}, "result": "y"} | fields)]


FIELDS = {
    "name": lambda text: {"test_name": text},
    "input": lambda text: {"test_input": text},
    "answer": lambda text: {"agent_response": text},
    "tool name": lambda text: {"tool_calls": [text], "tool_invocations": a_call(name=text)},
    "tool arguments": lambda text: {"tool_invocations": a_call(args={text: [text, {text: text}]})},
    "tool result": lambda text: {"tool_invocations": a_call(result=text)},
    "judge's reason": lambda text: {
        "metric_results": [
            MetricResult(metric_name="m", score=0.5, threshold=0.9, passed=False, reasoning=text)
        ]
    },
    "error": lambda text: {
        "errors": [text],
        "metric_results": [MetricResult(metric_name="m", error=text)],
    },
}


WORDS = ("word", "word" * 40, "two\nlines")


class Page(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.text = [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, tuple(attrs)))

    def handle_endtag(self, tag):
        self.elements.append((f"/{tag}", ()))

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        self.elements.append(("comment", data))

    def handle_decl(self, decl):
        self.elements.append(("declaration", decl))

    def handle_pi(self, data):
        self.elements.append(("instruction", data))

    unknown_decl = handle_decl


def report_with(field, text):
    return a_report(a_result(Outcome.FAILED, **FIELDS[field](text)))


def page_of(report):
    return rendered(generate_markdown_report(report))


def rendered(markdown):
    text = markdown.encode("utf-8", "backslashreplace").decode()
    return Page(cmarkgfm.cmark.markdown_to_html_with_extensions(text, OPTIONS, EXTENSIONS))


@pytest.fixture(scope="module")
def plain():
    """What the report is made of when its texts are words, short ones or long ones."""
    return {
        field: [page_of(report_with(field, word)).elements for word in WORDS] for field in FIELDS
    }


@pytest.mark.parametrize("payload", [*PAYLOADS, *COMMANDS])
def test_no_markup_of_a_payload_is_live(payload, plain, tally):
    pages = {field: page_of(report_with(field, payload)) for field in FIELDS}

    live = [field for field, page in pages.items() if page.elements not in plain[field]]
    tally("markup", live, len(FIELDS))
    words = re.findall(r"[A-Za-z]{3,}", payload)
    assert [(field, w) for field, page in pages.items() for w in words if w not in page.text] == []


def test_no_markup_of_a_payload_is_live_in_a_notebook(tally):
    for field in FIELDS:
        plain = [Page(report_with(field, word)._repr_html_()).elements for word in WORDS]
        pages = {text: Page(report_with(field, text)._repr_html_()) for text in PAYLOADS}

        live = [text for text, page in pages.items() if page.elements not in plain]
        tally("markup in a notebook", live, len(PAYLOADS))


@pytest.mark.parametrize("field", FIELDS)
def test_every_payload_can_be_read_back_from_json(field):
    for payload in PAYLOADS:
        report = report_with(field, payload)

        assert TestReport.model_validate(json.loads(generate_json_report(report))) == report


def test_the_payloads_are_live_where_nobody_escapes_them():
    words = rendered("word").elements

    live = [payload for payload in PAYLOADS if rendered(payload).elements != words]

    assert len(live) > len(PAYLOADS) / 2
