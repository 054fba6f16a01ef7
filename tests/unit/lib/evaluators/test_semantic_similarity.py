"""The metric `semantic_similarity`, comparing by words in place of a model."""

import pytest
from pydantic import TypeAdapter, ValidationError

from fakes import run_cli
from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.build import build_evaluator, can_fail
from holodeck.lib.evaluators.nlp_metrics import SemanticSimilarityEvaluator
from holodeck.models.evaluation import Metric
from support.similarity import SharedWords

REFERENCE = "dogs are allowed in here"
AGENT = """\
name: desk
backend: "desk:answer"
test_cases:
  - name: dogs
    input: May I bring a dog?
    ground_truth: Dogs are allowed.
    evaluations: [{metric: semantic_similarity}]
"""


def metric(**keys):
    return TypeAdapter(Metric).validate_python({"metric": "semantic_similarity", **keys})


def evaluator(**keys):
    return build_evaluator(metric(**keys), embeddings=SharedWords)


@pytest.mark.parametrize(
    ("keys", "response", "score", "passed"),
    [
        ({}, "dogs are allowed in", 0.8, True),
        ({}, "dogs are allowed", 0.6, False),
        ({"threshold": 0.5}, "dogs are allowed", 0.6, True),
        ({"threshold": 1}, REFERENCE, 1.0, True),
        ({}, " ", 0.0, False),
        ({"values": ["cats", "dogs"]}, "dogs", 1.0, True),
    ],
    ids=["like", "less", "threshold", "same", "blank", "best reference"],
)
async def test_the_score_is_the_likeness_and_0_7_is_enough(keys, response, score, passed):
    found = await evaluator(**keys).evaluate(response=response, ground_truth=REFERENCE)

    assert found["score"] == pytest.approx(score)
    assert found["passed"] is passed
    assert "expected" in found["reasoning"]


def test_it_can_fail_without_a_threshold_and_not_with_one_of_0():
    assert can_fail(metric())
    assert not can_fail(metric(threshold=0))


@pytest.mark.parametrize("threshold", [1.1, -0.1, float("nan")], ids=["1.1", "-0.1", "nan"])
def test_a_threshold_is_from_0_to_1(threshold):
    with pytest.raises(ValidationError, match="threshold"):
        metric(threshold=threshold)


@pytest.mark.parametrize("values", [[], ["dogs", " "], ["", "dogs"]], ids=str)
def test_one_empty_reference_among_the_values_is_a_configuration_error(values):
    with pytest.raises(ConfigError, match=r"^values: is empty, so every response would match"):
        SemanticSimilarityEvaluator(values=values, embeddings=SharedWords)


async def test_a_reference_is_needed():
    with pytest.raises(EvaluationError, match="needs ground_truth"):
        await SemanticSimilarityEvaluator(embeddings=SharedWords).evaluate(response="x")


def test_without_weights_and_network_the_case_is_undecided_and_says_what_to_pull(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    (tmp_path / "desk.py").write_text("def answer(question): return 'Dogs are allowed.'")

    ran = run_cli(
        "test", "agent.yaml", "--offline", "--no-record",
        cwd=tmp_path, env={"HOLODECK_CACHE_DIR": str(tmp_path / "cache")},
    )  # fmt: skip

    assert ran.code == 4
    assert "holodeck models pull all-minilm-l6-v2" in ran.stdout
