"""Asserts in graders: a failed check with the values that pytest would show."""

import pytest

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import Observation
from holodeck.lib.evaluators.build import build_evaluator
from holodeck.models.metrics.text import CodeMetric
from holodeck.models.results.evidence import Unknown

TWO_WORDS = Observation("two words")
HELPERS = """
def check(value):
    assert value == "left", "not left"
"""


@pytest.fixture
def grade(tmp_path, monkeypatch):
    """Returns the score that a grader with this body gives to a response."""

    monkeypatch.chdir(tmp_path)

    async def score(body, observation=TWO_WORDS, head="def grade(case):"):
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        (tmp_path / "helpers.py").write_text(HELPERS)
        (tmp_path / "graders.py").write_text(f"import unittest, helpers\n{head}\n{lines}")
        metric = CodeMetric(type="code", grader="graders:grade")
        return await build_evaluator(metric, tmp_path).evaluate_observation(observation)

    return score


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            'assert "refund" in case.response',
            "assert 'refund' in 'two words', where 'two words' = case.response (graders.py:3)",
        ),
        (
            'words = case.response.split()\nassert len(words) <= 1, "too\\nlong"',
            "too long: assert 2 <= 1, where 2 = len(words) and ['two', 'words'] = words (",
        ),
        ("n = 0\nassert not (n == 0 and 1)", "assert not (0 == 0 and 1), where 0 = n ("),
        ("n = 9\nassert 1 < n < 5 < 7", "assert 1 < 9 < 5 < 7, where 9 = n (graders.py:4)"),
        (
            "n = 2\nassert n == 1 or n == 1 / n",
            "assert (2 == 1 or 2 == 0.5), where 2 = n and 0.5 = 1 / n (graders.py:4)",
        ),
        ("assert (\n    1\n    ==\n    2\n)", "assert 1 == 2 (graders.py:"),
        (
            "items = iter([1, 2])\nassert next(items) == 2\nreturn 1",
            "assert 1 == 2, where 1 = next(items)",
        ),
        ("helpers.check('right')", "not left: assert value == 'left' (helpers.py:3)"),
        ("unittest.TestCase().assertEqual(case.input, 'x')", "None != 'x' (graders.py:3)"),
        ("raise AssertionError('my words')", "my words (graders.py:3)"),
    ],
    ids=lambda text: text.splitlines()[-1][:40],
)  # fmt: skip
async def test_a_failed_assert_is_a_failed_check_that_shows_its_values(grade, body, reason):
    score = await grade(body)

    assert (score.passed, score.score) == (False, 0.0)
    assert score.reason.startswith(reason)


async def test_a_coroutine_may_assert(grade):
    score = await grade("assert case.input == 'x'", head="async def grade(case):")

    assert score.passed is False
    assert score.reason == "assert None == 'x', where None = case.input (graders.py:3)"


async def test_a_grader_whose_asserts_hold_need_not_return_anything(grade):
    score = await grade("assert case.response\nassert case.input is None")

    assert (score.passed, score.reason) == (True, "2 asserts hold")


async def test_a_grader_that_returns_nothing_does_not_pass_if_no_assert_ran(grade):
    with pytest.raises(EvaluationError, match="returned a NoneType"):
        await grade("if case.input:\n    assert case.response")


async def test_an_assert_about_what_is_unknown_is_an_error(grade):
    unknown = Observation("hi", tool_calls=Unknown("tool_calls"))

    with pytest.raises(EvaluationError, match=r"tool calls are unknown; .*'tap: true'"):
        await grade("assert not case.tool_calls", unknown)


async def test_an_assert_of_a_library_is_a_fault_and_no_verdict(grade):
    with pytest.raises(EvaluationError, match="grade failed: AssertionError"):
        await grade("import threading\nthreading.Thread(group=1)")
