"""The traps as tests."""

from deepeval import assert_test
from deepeval.dataset import EvaluationDataset
from deepeval.metrics import ExactMatchMetric
from deepeval.test_case import LLMTestCase

ANSWER = "You can return it within 14 days."


def check_file(name: str) -> None:
    dataset = EvaluationDataset()
    dataset.add_goldens_from_json_file(name)
    [golden] = dataset.goldens
    case = LLMTestCase(
        input=golden.input, actual_output=ANSWER, expected_output=golden.expected_output
    )
    assert_test(case, [ExactMatchMetric()])


def test_right() -> None:
    check_file("right.json")


def test_wrong() -> None:
    check_file("wrong.json")


def test_misspelt() -> None:
    check_file("misspelt.json")


def test_raises() -> None:
    raise RuntimeError("the shop is closed")
