"""The ranking of retrieved documents by labels, as Azure AI Evaluation computes it."""

import math

import pytest
from pydantic import TypeAdapter, ValidationError

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.azure_project import DocumentRetrievalEvaluator
from holodeck.lib.evaluators.build import build_evaluator
from holodeck.models.evaluation import Metric

LABELS = {"returns.md": 4, "refunds.md": 2, "faq.md": 1, "imprint.md": 0}
RANKED = ["From refunds.md: money", "From returns.md: days", "Somewhere: else"]


def dcg(labels):
    return sum((2**label - 1) / math.log2(rank + 2) for rank, label in enumerate(labels))


# worked out from the definitions: the labels found are 2, 4 and 0, the best 4, 2 and 1
EXPECTED = {
    "ndcg": (dcg([2, 4, 0]) / dcg([4, 2, 1]), 1),
    "xdcg": (25 * (2 + 4 * 0.6) / (1 + 0.6 + 0.36), 100),
    "fidelity": ((7 + 31) / (31 + 7 + 3), 1),
    "top1_relevance": (2, 4),
    "top3_max_relevance": (4, 4),
}


async def result_of(passages, labels=LABELS, **options):
    evaluator = DocumentRetrievalEvaluator(relevance=labels, **options)
    return await evaluator.evaluate(response="", retrieval_context=passages)


@pytest.mark.parametrize("measure", EXPECTED)
async def test_a_measure_is_that_of_its_definition_from_0_to_1(measure):
    raw, largest = EXPECTED[measure]

    result = await result_of(RANKED, measure=measure)

    assert result["raw_score"] == pytest.approx(raw)
    assert result["score"] == pytest.approx(raw / largest)
    assert result["raw_scale"] == f"0-{largest}"
    assert "3 documents found, 1 without a label" in result["reasoning"]


async def test_fewer_documents_without_a_label_are_better():
    result = await result_of(RANKED, measure="holes")

    assert result["raw_score"] == pytest.approx(1 / 3)
    assert result["score"] == pytest.approx(2 / 3)


async def test_passages_of_one_document_count_once_at_the_first_rank():
    once = await result_of(["returns.md 1", "faq.md", "refunds.md"])
    twice = await result_of(["returns.md 1", "returns.md 2", "faq.md", "refunds.md"])

    assert once["score"] == twice["score"] < 1


@pytest.mark.parametrize("measure", EXPECTED)
async def test_nothing_relevant_is_the_worst_score(measure):
    result = await result_of(["imprint.md", "Somewhere: else"], measure=measure)

    assert result["score"] == 0
    assert result["passed"] is False


async def test_without_passages_it_is_an_error():
    with pytest.raises(EvaluationError, match="retrieval_context"):
        await result_of(None)


def built(**keys):
    return build_evaluator(
        TypeAdapter(Metric).validate_python({"metric": "document_retrieval", **keys})
    )


@pytest.mark.parametrize("kind", [{}, {"type": "azure"}, {"type": "standard"}])
def test_the_keys_of_agent_yaml_reach_the_evaluator(kind):
    evaluator = built(relevance=LABELS, measure="fidelity", threshold=0.9, **kind)

    assert isinstance(evaluator, DocumentRetrievalEvaluator)
    settings = evaluator.settings
    assert (settings.relevance, settings.measure) == (LABELS, "fidelity")
    assert evaluator.threshold == 0.9


@pytest.mark.parametrize(
    ("relevance", "told"),
    [({}, "at least 1"), ({"a": 5}, "less than or equal to 4"), ({"a": 0}, "no document above 0")],
)
def test_labels_that_nothing_can_match_are_refused(relevance, told):
    with pytest.raises(ValidationError, match=told):
        built(relevance=relevance)
