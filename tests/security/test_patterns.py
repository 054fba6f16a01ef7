"""A regular expression that explodes costs its time limit, wherever it stands."""

import time

import pytest

from fakes import case
from holodeck.config.syntax import decode
from holodeck.lib.observability.content import TOO_SLOW, Content
from holodeck.lib.redact import Redactor
from holodeck.lib.test_runner.tool_checks import check_tools
from holodeck.lib.text import one_line, printable
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import ToolInvocation
from support.checks import assert_plain

EXPLODING = ["(a+)+$", "(a|aa)+$", "(.*a){20}x", "(?:a?){60}a{60}b"]
ANSWERS = ["a" * 35 + "!", "a" * 5000 + "!", "a" * 1_000_000 + "!"]


def test_a_metric_takes_its_time_limit_and_the_others_run_on(bot_dir, write_bot):
    write_bot(
        test_cases=[
            *(
                case(f"{pattern} {len(text)}", text, evaluations=[
                    {"metric": "regex", "pattern": pattern, "time_limit_ms": 300}
                ])
                for pattern in EXPLODING for text in ANSWERS[:2]
            ),
            case("fine", "hello", contains="hello"),
        ]
    )  # fmt: skip

    ran = bot_dir.run("test", timeout=30)

    assert_plain(ran)
    assert ran.code in {1, 4}
    assert "PASS fine" in ran.stdout
    assert ran.seconds < 15


@pytest.mark.parametrize("pattern", EXPLODING)
@pytest.mark.parametrize("text", ANSWERS, ids=len)
def test_a_tool_matcher_ends_in_time(pattern, text):
    wanted = {"name": "t", "args": {"q": {"regex": pattern}}}
    checked = TestCaseModel.model_validate({"input": "x", "expected_tools": [wanted]})
    started = time.monotonic()
    try:
        [check] = check_tools(checked, [ToolInvocation(name="t", args={"q": text})])
    except Exception as error:  # noqa: BLE001
        assert "takes longer than" in str(error)  # noqa: PT017
    else:
        assert not check.passed
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("pattern", EXPLODING)
@pytest.mark.parametrize("text", ANSWERS[:2], ids=len)
def test_a_redaction_pattern_that_explodes_hides_everything(pattern, text):
    started = time.monotonic()

    shown = Content([pattern]).masked(text)

    assert time.monotonic() - started < 2
    assert shown in {text, TOO_SLOW}


def test_a_pattern_of_100_kb_is_compiled_or_refused_in_time(bot_dir, write_bot):
    for pattern in ("(a|b)" * 20_000, "(" * 50_000, "a{1000}{1000}{1000}", "[" * 100_000):
        write_bot(
            test_cases=[
                case("x", "ab", evaluations=[{"metric": "regex", "pattern": pattern}]),
            ]
        )

        ran = bot_dir.run("test", timeout=30)

        assert_plain(ran)
        assert ran.code in {1, 2, 4}
        assert len(ran.stdout + ran.stderr) < 4000


SLOW_FOR_CARELESS_PATTERNS = [
    "a" * 1_000_000,
    "sk-" * 300_000,
    "eyJ" * 300_000,
    "eyJaaaaaaaa." * 80_000,
    "api_key" * 100_000,
    "api_key: " * 100_000,
    "api_key = '" * 100_000,
    "bearer " * 100_000,
    "basic " * 150_000,
    "://" * 300_000,
    "-----BEGIN PRIVATE KEY-----" * 30_000,
    "x_api-key" + " " * 1_000_000,
    "ghp_" * 200_000,
    "\u202e" * 1_000_000,
    " \t" * 500_000,
    "\n" * 1_000_000,
]


@pytest.mark.parametrize("text", SLOW_FOR_CARELESS_PATTERNS, ids=lambda text: repr(text[:12]))
def test_our_own_patterns_take_a_long_text_without_pausing(text):
    redactor = Redactor(["the-key-of-the-agent"])
    for treat in (redactor.redact, printable, lambda text: one_line(text, 200)):
        started = time.monotonic()

        treat(text)

        assert time.monotonic() - started < 3


def test_decoding_a_long_line_takes_no_time():
    started = time.monotonic()

    decode(b"a" * 10_000_000, "x")

    assert time.monotonic() - started < 2
