"""A regular expression that explodes costs its time limit, wherever it stands."""

import json
from contextlib import suppress

import pytest
import yaml

from fakes import case
from holodeck.config.yaml.nodes import decode_text
from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.checks.matching import Trajectory
from holodeck.lib.checks.tool_checks import check_tools
from holodeck.lib.evaluators.json_schema import JsonSchemaEvaluator
from holodeck.lib.observability.tracing import TOO_SLOW, Content
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.patterns import MAX_LENGTH, compile_pattern, find
from holodeck.lib.support.text import one_line, printable
from holodeck.models.results.evidence import evidence
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import ToolInvocation
from support.checks import assert_plain
from support.pace import bounded_work

EXPLODING = ["(a+)+$", "(a|aa)+$", "(.*a){20}x", "(?:a?){60}a{60}b"]
ANSWERS = ["a" * 35 + "!", "a" * 5000 + "!", "a" * 1_000_000 + "!"]


def test_a_metric_takes_its_time_limit_and_the_others_run_on(bot_dir, write_bot):
    write_bot(
        test_cases=[
            *(
                case(f"{pattern} {len(text)}", text, evaluations=[
                    {"metric": "regex", "pattern": pattern, "time_limit_ms": 200}
                ])
                for pattern in EXPLODING for text in ANSWERS[:2]
            ),
            case("fine", "hello", contains="hello"),
        ],
    )  # fmt: skip

    ran = bot_dir.run("test")

    assert_plain(ran)
    assert ran.code in {1, 4}
    assert "PASS fine" in ran.stdout


@pytest.fixture(autouse=True)
def _in_time():
    """What these patterns and texts would take without their limits is hours."""
    with bounded_work():
        yield


@pytest.mark.parametrize("pattern", EXPLODING)
@pytest.mark.parametrize("text", [ANSWERS[0], ANSWERS[2]], ids=len)
def test_a_tool_matcher_ends_in_time(pattern, text):
    wanted = {"name": "t", "args": {"q": {"regex": pattern}}}
    checked = TestCaseModel.model_validate({"input": "x", "expected_tools": [wanted]})

    try:
        call = ToolInvocation(name="t", args={"q": text})
        [check] = check_tools(checked, Trajectory([call], evidence(tool_calls="backend")))
    except EvaluationError as error:
        assert "takes longer than" in str(error)  # noqa: PT017
    else:
        assert not check.passed


@pytest.mark.parametrize("pattern", EXPLODING)
@pytest.mark.parametrize("text", ANSWERS[:2], ids=len)
def test_a_redaction_pattern_that_explodes_hides_everything(pattern, text):
    shown = Content([pattern]).mask(text)

    assert shown in {text, TOO_SLOW}


LONG_PATTERNS = {
    "groups": "(a|b)" * 20_000,
    "open groups": "(" * 50_000,
    "open sets": "[" * 100_000,
    "repeated words": "aab" * 40_000,
}


@pytest.mark.parametrize("what", LONG_PATTERNS)
def test_a_pattern_of_100_kb_is_refused_at_once(tmp_path, cli, what):
    check = {"metric": "regex", "pattern": LONG_PATTERNS[what]}
    (tmp_path / "agent.yaml").write_text(
        yaml.safe_dump(
            {
                "name": "x",
                "backend": {"type": "http", "url": "http://x"},
                "test_cases": [{"input": "x", "evaluations": [check]}],
            }
        )
    )

    ran = cli.run("validate", cwd=tmp_path)

    assert (ran.code, "1,000 are allowed" in ran.stdout) == (2, True)


@pytest.mark.parametrize(
    "part", ["ss", "aab", "a", "k\u212a", "\ufb01", "(ab)?", "(?:a|b)", "\\p{L}"]
)
def test_the_longest_pattern_there_may_be_is_ready_in_time(part):
    pattern = part * (MAX_LENGTH // len(part))
    for text in (ANSWERS[2], part * 100_000):
        with suppress(TimeoutError):
            find(compile_pattern(pattern, ignore_case=True), text, 0.2)


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": EXPLODING[1]},
        {"patternProperties": {EXPLODING[1]: False}},
        {"patternProperties": {EXPLODING[1]: False}, "additionalProperties": False},
        {"propertyNames": {"pattern": EXPLODING[1]}},
    ],
    ids=" ".join,
)
async def test_a_schema_ends_in_time_whatever_an_answer_calls_its_keys(schema):
    text = ANSWERS[1]
    answer = json.dumps(text if "pattern" in schema else {text: 1})

    with pytest.raises(EvaluationError, match="took longer than 1 s"):
        await JsonSchemaEvaluator(schema=schema).evaluate(response=answer)


@pytest.mark.parametrize(
    ("answer", "faults"),
    [
        ({"x-a": 1, "known": "y"}, []),
        ({"x-a": "no number"}, ["x-a", "integer"]),
        ({"other": 1}, ["'other'", "not allowed"]),
    ],
    ids=str,
)
async def test_patterns_of_keys_mean_what_json_schema_says(answer, faults):
    schema = {
        "properties": {"known": {"type": "string"}},
        "patternProperties": {"^x-": {"type": "integer"}},
        "additionalProperties": False,
    }

    graded = await JsonSchemaEvaluator(schema=schema).evaluate(response=json.dumps(answer))

    assert graded["passed"] is not bool(faults)
    assert [fault for fault in faults if fault not in graded["reasoning"]] == []


def test_keywords_that_the_library_matches_without_a_limit_are_refused():
    schema = {"patternProperties": {"a": {}}, "unevaluatedProperties": False}

    with pytest.raises(ConfigError, match="write 'additionalProperties'"):
        JsonSchemaEvaluator(schema=schema)


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
    Redactor(["the-key-of-the-agent"]).redact(text)
    printable(text)
    one_line(text, 200)


def test_decoding_a_long_line_is_no_more_work_than_reading_it():
    assert len(decode_text(b"a" * 10_000_000, "x")) == 10_000_000
