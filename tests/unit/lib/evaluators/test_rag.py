import pytest

from holodeck.errors import ConfigError
from holodeck.lib.evaluators.deepeval import FaithfulnessEvaluator
from holodeck.lib.evaluators.deepeval.rag import RAG_EVALUATOR_MAP
from holodeck.models.metrics.deepeval import RAGMetricType


def test_every_metric_about_passages_has_a_row():
    assert set(RAG_EVALUATOR_MAP) == set(RAGMetricType)
    assert RAG_EVALUATOR_MAP[RAGMetricType.FAITHFULNESS] is FaithfulnessEvaluator


@pytest.mark.parametrize("metric", RAGMetricType)
def test_a_row_makes_the_metric_of_its_name(metric):
    evaluator = RAG_EVALUATOR_MAP[metric](threshold=0.7, include_reason=False, timeout=3)

    assert evaluator.metric == metric.value
    assert (evaluator.threshold, evaluator.include_reason, evaluator.timeout) == (0.7, False, 3)


async def test_a_metric_without_a_judge_says_so():
    evaluator = RAG_EVALUATOR_MAP[RAGMetricType.ANSWER_RELEVANCY]()

    with pytest.raises(ConfigError, match="needs a model that judges"):
        await evaluator.evaluate(input="Dogs?", actual_output="Yes")
