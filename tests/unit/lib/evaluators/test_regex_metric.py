import asyncio

import pytest

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.text_metrics import RegexEvaluator
from support.pace import bounded_work


@pytest.mark.parametrize(
    ("options", "response", "passed"),
    [
        ({"pattern": r"order \d+"}, "Your order 42 is ready", True),
        ({"pattern": r"order \d+"}, "Your order is ready", False),
        ({"pattern": r"order \d+", "fullmatch": True}, "Your order 42", False),
        ({"pattern": r".*order \d+", "fullmatch": True}, "Your order 42", True),
        ({"pattern": "ORDER"}, "order", False),
        ({"pattern": "ORDER", "ignore_case": True}, "order", True),
        ({"pattern": r"^\p{Lu}"}, "Ärger", True),
        ({"pattern": "a"}, "", False),
        ({"pattern": "^$"}, "", True),
    ],
)
async def test_a_pattern_is_found_or_not(options, response, passed):
    result = await RegexEvaluator(**options).evaluate(response=response)

    assert result["passed"] is passed
    assert result["score"] == result["regex"] == float(passed)


async def test_the_reason_shows_pattern_and_match():
    found = await RegexEvaluator(pattern=r"\d+").evaluate(response="order 42")
    missed = await RegexEvaluator(pattern=r"\d+").evaluate(response="order")

    assert found["reasoning"] == "'\\\\d+' matches '42'"
    assert missed["reasoning"] == "'\\\\d+' does not match 'order'"


@pytest.mark.parametrize("pattern", ["(", "[a", "(?P<x>", "*", ""])
def test_a_pattern_that_cannot_be_read_is_a_configuration_error(pattern):
    with pytest.raises(ConfigError, match="pattern"):
        RegexEvaluator(pattern=pattern)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$"])
@pytest.mark.parametrize("size", [2_000, 1_000_000])
async def test_a_pattern_that_explodes_is_an_error_within_its_limit(pattern, size):
    evaluator = RegexEvaluator(pattern=pattern, time_limit_ms=200)

    with bounded_work(), pytest.raises(EvaluationError, match=r"took longer than 0\.2 s"):
        await evaluator.evaluate(response="a" * size + "!")


async def test_an_exploding_pattern_does_not_hold_up_others():
    evaluator = RegexEvaluator(pattern="(a|aa)+$", time_limit_ms=500)
    evaluating = asyncio.create_task(evaluator.evaluate(response="a" * 5000 + "!"))
    turns = 0
    while not evaluating.done():
        await asyncio.sleep(0)
        turns += 1

    with pytest.raises(EvaluationError):
        await evaluating
    assert turns > 1
