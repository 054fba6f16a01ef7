"""Secrets do not leave, whatever they are wrapped in; the rest of a text stays."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.lib.secrets.redact import Redactor
from holodeck.models.test_result import Outcome, TestReport, ToolInvocation
from support.results import a_report, a_result

MIXED = "a1B2c3D4e5F6g7H8h7H8"
KEY = "kz/9+Vq:3<&> wé\"n'w\\7-end"


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


@pytest.mark.parametrize("wrap", ["\n", "\r\n", "\\n", "\n    "])
def test_base64_in_lines_does_not_show_a_secret(wrap):
    secret = "the-secret-of-the-house-0123456789"
    encoded = base64.b64encode(b"x" * 50 + secret.encode() + b"y" * 50).decode()
    lines = wrap.join(encoded[at : at + 76] for at in range(0, len(encoded), 76))

    shown = Redactor([secret]).redact(f"body: {lines} end")

    assert "***6789" in shown
    assert (shown[:6], shown[-4:]) == ("body: ", " end")
    assert Redactor(["another-secret-4711"]).redact(lines) == lines


def test_a_single_line_of_a_long_secret_is_masked():
    lines = [
        "-----BEGIN THING-----",
        "MIIEvQIBADANBgkqhkiG9w0BAQ",
        "AoIBAQC7VJTUt9Us8cKjMzEfYy",
        "x",
    ]

    shown = Redactor(["\n".join(lines)]).redact(f"line 3 is {lines[2]}, not x")

    assert shown == "line 3 is ***EfYy, not x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET http://x/y?key=0123456789 done", "GET http://x/y?key=*** done"),
        ("http://x/?a=1&sig=abcdefghijkl", "http://x/?a=1&sig=***ijkl"),
        ("http://x/?a=1\\u0026code=abcdefghijkl", "http://x/?a=1\\u0026code=***ijkl"),
        ("http://x/?X-Amz-Signature=abcdefghijkl", "http://x/?X-Amz-Signature=***ijkl"),
        ("http://x/?subscription-key=abcdefghijkl", "http://x/?subscription-key=***ijkl"),
        ("http://x/?token=abcdefghijkl&page=next-page", "http://x/?token=***ijkl&page=next-page"),
        ("run srv --token a1b2c3d4 now", "run srv --token *** now"),
        ('["srv", "--token", "a1b2c3d4"]', '["srv", "--token", "***"]'),
        ("srv --api-key=abcdefghijkl -v", "srv --api-key=***ijkl -v"),
        (f"sk_live_{MIXED}", "***h7H8"),
        (f"whsec_{MIXED}", "***h7H8"),
        (f"SG.{MIXED}.{MIXED}", "***h7H8"),
        (f"npm_{MIXED * 3}", "***h7H8"),
        (f"pypi-AgEIcHlwaS5vcmc{MIXED * 3}", "***h7H8"),
        (f"dop_v1_{'ab12' * 16}", "***ab12"),
        (f"ya29.a0{MIXED * 2}", "***h7H8"),
        ("password: hunter2secret", "password: ***cret"),
        ("AccountName=a;AccountKey=abcdefgh12+/==;x", "AccountName=a;AccountKey=***+/==;x"),
        ("https://hooks.slack.com/services/T000/B000/XXXX x", "https://hooks.slack.com/*** x"),
        ("https://host/bot123:ABC/send", "https://host/bot***/send"),
        ("https://hooks.zapier.com/hooks/catch/1/a2b/", "https://hooks.zapier.com/hooks/catch/***"),
        ("curl -u joe:hunter22 http://x", "curl -u *** http://x"),
        ("docker run -u 1000:1000 x", "docker run -u 1000:1000 x"),
        ("https://hooks.slack.com/services/T0/B0/abcdefgh", "https://hooks.slack.com/***"),
        (
            "https://discord.com/api/webhooks/123/abcdefgh",
            "https://discord.com/api/webhooks/***",
        ),
    ],
)
def test_secrets_in_urls_commands_and_connection_strings_are_masked(text, shown):
    assert Redactor().redact(text) == shown


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
        "http://shop/search?q=shoes&sort_key=price&page=12345678",
        "Pass --token instead of --password, or --cache-key nightly-2024.",
        "Add --model gpt-4o-mini --endpoint http://localhost:11434",
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
