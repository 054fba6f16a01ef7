from importlib.util import find_spec

import pytest

from holodeck.errors import ConfigError, MissingExtra, NotSupportedYet
from holodeck.lib.evaluators.rag import RAG_EVALUATOR_MAP
from holodeck.models.evaluation import RAGMetricType


def test_every_metric_about_passages_has_a_row():
    assert set(RAG_EVALUATOR_MAP) == set(RAGMetricType)


@pytest.mark.parametrize("metric", RAGMetricType)
def test_a_row_says_what_is_missing(metric):
    expected = NotSupportedYet if find_spec("deepeval") else MissingExtra

    with pytest.raises(expected, match=metric.value) as caught:
        RAG_EVALUATOR_MAP[metric](threshold=0.7)

    assert isinstance(caught.value, ConfigError)
