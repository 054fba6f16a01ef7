import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.text_metrics import (
    ContainsEvaluator,
    ExactMatchEvaluator,
    Normalization,
    NotContainsEvaluator,
)
from holodeck.lib.support.text import is_blank


async def verdict(evaluator, response, ground_truth=None):
    result = await evaluator.evaluate(response=response, ground_truth=ground_truth)
    assert result["score"] == float(result["passed"])
    return result["passed"]


@pytest.mark.parametrize(
    ("options", "response", "passed"),
    [
        ({}, "Paris", True),
        ({}, " Paris\n", True),
        ({"strip": False}, " Paris\n", False),
        ({}, "paris", False),
        ({"ignore_case": True}, "PARIS", True),
        ({}, "Paris.", False),
        ({"ignore_punctuation": True}, "«Paris».", True),
        ({}, "", False),
        ({"values": ["Lyon", "Paris"]}, "Paris", True),
        ({"values": ["Lyon", "Nice"]}, "Paris", False),
    ],
)
async def test_exact_match(options, response, passed):
    options = options if "values" in options else {"value": "Paris"} | options

    assert await verdict(ExactMatchEvaluator(**options), response) is passed


@pytest.mark.parametrize(
    ("options", "wanted", "response"),
    [
        ({}, "caf\u00e9", "cafe\u0301"),
        ({"ignore_case": True}, "STRASSE", "straße"),
        ({"ignore_case": True}, "\u00c9T\u00c9", "e\u0301te\u0301"),
        ({"normalize_whitespace": True}, "a b", "a \n\t b"),
    ],
)
async def test_two_ways_to_write_the_same_text_are_equal(options, wanted, response):
    assert await verdict(ExactMatchEvaluator(value=wanted, **options), response)


@pytest.mark.parametrize(
    ("options", "response", "passed"),
    [
        ({"value": "refund"}, "Ask for a refund today", True),
        ({"value": "refund"}, "Ask for a Refund today", False),
        ({"value": "refund", "ignore_case": True}, "Ask for a Refund today", True),
        ({"value": "refund"}, "", False),
        ({"values": ["refund", "today"]}, "Ask for a refund today", True),
        ({"values": ["refund", "week"]}, "Ask for a refund today", False),
        ({"values": ["refund", "week"], "match": "any"}, "Ask for a refund today", True),
        ({"values": ["month", "week"], "match": "any"}, "Ask for a refund today", False),
        ({"value": "30 days"}, "30\n  days", False),
        ({"value": "30 days", "normalize_whitespace": True}, "in 30\n  days", True),
    ],
)
async def test_contains(options, response, passed):
    assert await verdict(ContainsEvaluator(**options), response) is passed


@pytest.mark.parametrize(
    ("options", "response", "passed"),
    [
        ({"value": "sorry"}, "Of course", True),
        ({"value": "sorry"}, "I am sorry", False),
        ({"value": "sorry"}, "Sorry", True),
        ({"value": "sorry", "ignore_case": True}, "Sorry", False),
        ({"values": ["sorry", "cannot"]}, "I cannot", False),
        ({"values": ["sorry", "cannot"]}, "", True),
    ],
)
async def test_not_contains(options, response, passed):
    assert await verdict(NotContainsEvaluator(**options), response) is passed


@pytest.mark.parametrize("make", [ExactMatchEvaluator, ContainsEvaluator])
async def test_without_a_value_the_ground_truth_is_compared_with(make):
    assert await verdict(make(), "Paris", "Paris")
    assert not await verdict(make(), "Paris", "Rome")


async def test_a_value_wins_over_the_ground_truth():
    assert await verdict(ExactMatchEvaluator(value="Paris"), "Paris", "Rome")


@pytest.mark.parametrize("make", [ExactMatchEvaluator, ContainsEvaluator, NotContainsEvaluator])
@pytest.mark.parametrize(
    "wrong",
    [{"value": ""}, {"values": []}, {"value": "  "}, {"value": "?!", "ignore_punctuation": True}],
)
def test_a_text_that_is_in_every_answer_is_a_configuration_error(make, wrong):
    with pytest.raises(ConfigError, match="is empty"):
        make(**wrong)


@pytest.mark.parametrize("make", [ExactMatchEvaluator, ContainsEvaluator, NotContainsEvaluator])
@pytest.mark.parametrize("values", [[], ["Paris", ""], [" ", "Paris"]], ids=str)
def test_one_empty_text_among_the_values_is_a_configuration_error(make, values):
    with pytest.raises(ConfigError, match=r"^values: is empty, so every response would match"):
        make(values=values)


async def test_a_ground_truth_of_which_nothing_is_left_is_an_error_not_a_pass():
    with pytest.raises(EvaluationError, match="is empty after normalization"):
        await verdict(ContainsEvaluator(ignore_punctuation=True), "anything", "?!")


async def test_an_answer_that_is_not_text_is_an_error():
    with pytest.raises(EvaluationError, match="response is a dict"):
        await ExactMatchEvaluator(value="a").evaluate(response={"a": 1})


@pytest.mark.parametrize(("threshold", "passed"), [(0.0, True), (0.5, False), (1.0, False)])
async def test_a_threshold_replaces_the_verdict_and_zero_counts(threshold, passed):
    result = await ExactMatchEvaluator(threshold, value="Paris").evaluate(response="Rome")

    assert result["passed"] is passed


@pytest.mark.parametrize(
    ("evaluator", "response", "reason"),
    [
        (
            ExactMatchEvaluator(value="in 30 days"),
            "in 14 days",
            (
                "expected 'in 30 days'; from character 4 on: expected '30 days', got '14 days'; "
                "got 'in 14 days'"
            ),
        ),
        (
            ExactMatchEvaluator(value="Paris"),
            "Paris!",
            "expected 'Paris'; from character 6 on: expected the end, got '!'; got 'Paris!'",
        ),
        (ExactMatchEvaluator(values=["a", "b"]), "c", "expected 'a' or 'b'; got 'c'"),
        (ContainsEvaluator(values=["a", "x", "y"]), "abc", "did not find 'x', 'y'; got 'abc'"),
        (
            ContainsEvaluator(values=["a", "x"], match="any"),
            "abc",
            "found 'a'; got 'abc'",
        ),
        (NotContainsEvaluator(values=["a", "x"]), "abc", "found 'a'; got 'abc'"),
        (
            NotContainsEvaluator(value="x"),
            "\x1b[2Jabc" + "d" * 1000,
            "did not find 'x'; got '\\x1b[2Jabc" + "d" * 72 + "…'",
        ),
    ],
)
async def test_the_reason_says_what_was_expected_and_what_was_there(evaluator, response, reason):
    assert (await evaluator.evaluate(response=response))["reasoning"] == reason


@given(text=st.text(min_size=1).filter(lambda text: not is_blank(text)))
@settings(max_examples=60)
async def test_a_text_equals_itself_and_contains_itself(text):
    assert await verdict(ExactMatchEvaluator(value=text), text)
    assert await verdict(ContainsEvaluator(value=text), f"x{text}")
    assert not await verdict(NotContainsEvaluator(value=text), text)


@given(text=st.text())
@settings(max_examples=60)
def test_taking_away_what_does_not_count_twice_changes_nothing(text):
    everything = Normalization(True, True, True, True)

    once = everything.apply(text)

    assert everything.apply(once) == once


@pytest.mark.parametrize("invisible", ["\u200b", "\ufeff \u2060"], ids=ascii)
async def test_an_invisible_text_is_nothing_to_compare_with(invisible):
    with pytest.raises(ConfigError, match="is empty"):
        ExactMatchEvaluator(value=invisible)
    with pytest.raises(EvaluationError, match="is empty"):
        await ExactMatchEvaluator().evaluate(response=invisible, ground_truth=invisible)


async def test_an_invisible_character_can_be_forbidden():
    assert not await verdict(NotContainsEvaluator(value="\u200b"), "a\u200bb")
