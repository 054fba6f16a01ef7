"""Whatever a model answers, every report of it is valid and loses nothing it should keep."""

import json
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from holodeck.lib.reports.formats import FORMATS
from holodeck.lib.secrets.redact import Redactor
from holodeck.models.test_result import MetricResult, TestReport, ToolInvocation
from support.html_page import HtmlPage
from support.results import a_report, a_result


def as_json_has_it(text):
    """JSON cannot tell the two halves of a character, one after the other, from the character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def can_be_told(text):
    try:
        return as_json_has_it(text) == text
    except UnicodeDecodeError:
        return True


ANY_TEXT = st.text(st.characters(), max_size=200) | st.text(
    st.sampled_from("<>&\"'`|#*_[]()\\\n\r\t\x00\x1b\x85\u2028\u202e\ud800\udfff\ufffe;,=@+-"),
    max_size=40,
)
ANY_TEXT = ANY_TEXT.filter(can_be_told)
ANY_BYTES = st.binary(max_size=200).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=10,
)


def report_of(text, arguments=None):
    """A report whose texts all are that one."""
    return a_report(
        a_result(
            test_name=text,
            test_input=text,
            agent_response=text,
            ground_truth=text,
            errors=[text],
            tool_invocations=[ToolInvocation(name=text, args=arguments or {}, result=text)],
            metric_results=[MetricResult(metric_name="m", score=0.5, passed=False, reasoning=text)],
        )
    )


@given(ANY_TEXT | ANY_BYTES, st.dictionaries(st.text(max_size=9), JSON, max_size=3))
def test_any_answer_makes_a_valid_report_in_every_format(text, arguments):
    report = report_of(text, arguments)
    for name in FORMATS.names():
        written = FORMATS.load(name, location="--format")(report)
        data = written.encode("utf-8", "backslashreplace").decode("utf-8")
        if name == "json":
            assert TestReport.model_validate(json.loads(data)) == report
        elif name == "junit":
            assert ET.fromstring(data) is not None
        elif name == "html":
            page = HtmlPage(data)
            page.require_harmless()
            assert page.cases[0]["test_input"] == text
        else:
            assert MarkdownIt("commonmark", {"html": True}).enable("table").parse(data)


@given(ANY_TEXT | ANY_BYTES, st.lists(ANY_TEXT, max_size=4))
def test_hiding_secrets_neither_fails_nor_leaves_one(text, secrets):
    spoken = text + "".join(f" {secret} " for secret in secrets)

    shown = Redactor(secrets).redact(spoken)

    long = [one.strip() for one in secrets if len(one.strip()) >= 13]
    assert not [one for one in long if one in shown and one != "placeholder"]


@given(ANY_TEXT)
def test_hiding_secrets_twice_changes_nothing_more(text):
    redactor = Redactor(["a-secret-of-mine"])

    once = redactor.redact(text)

    assert redactor.redact(once) == once
