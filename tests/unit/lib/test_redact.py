"""Secrets do not leave, whatever they are wrapped in; the rest of a text stays."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.lib.redact import Redactor
from holodeck.models.test_result import Outcome, TestReport, ToolInvocation
from support.results import a_report, a_result

KEY = "kz/9+Vq:3 wé\"n'w\\7-end"


def test_a_known_secret_is_masked_but_for_its_last_four():
    assert Redactor([KEY]).redact(f"key {KEY}!") == "key ***-end!"


def test_a_short_secret_leaves_no_hint():
    assert Redactor(["hunter22"]).redact("pw hunter22") == "pw ***"


@pytest.mark.parametrize(
    "spelled",
    [quote(KEY, safe=""), json.dumps(KEY), repr(KEY), json.dumps(KEY, ensure_ascii=False)],
    ids=["url", "json", "repr", "json-unicode"],
)
def test_other_spellings_of_a_secret_are_masked(spelled):
    shown = Redactor([KEY]).redact(f"x {spelled} y")

    assert "***-end" in shown
    assert "Vq" not in shown


@given(st.binary(max_size=7), st.text("abcdefXYZ0123456789+/_", min_size=12), st.binary(max_size=7))
def test_base64_of_text_around_a_secret_does_not_show_it(before, secret, after):
    encoded = base64.b64encode(before + secret.encode() + after).decode()

    shown = Redactor([secret]).redact(encoded)

    assert "***" in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sk-proj-abcdefghijkl1234", "***1234"),
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer ***3456"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "Authorization: Basic ***ZA=="),
        ("https://joe:pa55@host/x", "https://***@host/x"),
        ("AKIAIOSFODNN7EXAMPLE", "***MPLE"),
        ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "***8B4a"),
        ("xoxb-1234567890-abcdef", "***cdef"),
        ("GET /?api_key=0123456789abcdef&x=1", "GET /?api_key=***cdef&x=1"),
        ('{"password": "correct horse"}', '{"password": "*** horse"}'),
        ("api_key: 0123456789abcdef", "api_key: ***cdef"),
    ],
    ids=["sk", "bearer", "basic", "userinfo", "aws", "github", "slack", "query", "json", "yaml"],
)
def test_what_looks_like_a_secret_is_masked(text, shown):
    assert Redactor().redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Each bearer certificate shows the basic understanding required.",
        "Your password: choose a long one.",
        "See https://example.com/@user and mail me@example.com",
        "ollama runs at http://localhost:11434",
        "ask-me-anything-about-it",
    ],
)
def test_everyday_text_is_left_alone(text):
    assert Redactor(["ollama", "short"]).redact(text) == text


def test_a_report_is_redacted_down_to_tool_arguments_and_keeps_its_verdicts():
    call = ToolInvocation(
        name="login", args={"deep": [{"k": KEY}], "password": "tiny"}, result={"token": KEY}
    )
    found = a_result(agent_response=f"your key is {KEY}", tool_invocations=[call], errors=[KEY])
    report = a_report(found)

    shown = Redactor([KEY, "passed"]).redact_report(report)

    assert "Vq" not in shown.model_dump_json()
    assert shown.results[0].tool_invocations[0].args["password"] == "***"
    assert shown.results[0].outcome is Outcome.PASSED
    assert TestReport.model_validate_json(shown.model_dump_json()) == shown


@pytest.mark.parametrize(
    ("first", "second", "secret"),
    [
        ("password=***abcd", "api_key=hunter2-hunter2", "hunter2"),
        ("see https://", "user:hunter2@example.com", None),
        ("a bearer ", "hunter2hunter2", None),
        ("sk-", "proj-hunter2-hunter2", None),
        ("safe", "a\nsk-hunter2-hunter2-hunter2", "hunter2"),
    ],
)
def test_texts_of_a_report_are_searched_each_by_itself(first, second, secret):
    report = a_result(errors=[first, second])

    shown = Redactor().redact_report(report)

    assert shown.errors == [Redactor().redact(first), Redactor().redact(second)]
    assert secret is None or secret not in shown.errors[1]


@given(st.lists(st.text("sk-abc123 :=/@\n\0*'\"eyJ.password"), max_size=4))
def test_a_report_hides_what_each_of_its_texts_hides(texts):
    report = a_result(errors=texts)

    assert Redactor(["abc123"]).redact_report(report).errors == [
        Redactor(["abc123"]).redact(text) for text in texts
    ]


@pytest.mark.parametrize("at", [0, 499, 500, 1_001])
def test_a_secret_anywhere_among_many_texts_is_found(at):
    texts = [f"text {number}" for number in range(1_002)]
    texts[at] = "the key is abc123"

    shown = Redactor(["abc123"]).redact_report(a_result(errors=texts))

    assert shown.errors[at] == "the key is ***"
    assert [text for text in shown.errors if text not in texts] == ["the key is ***"]
