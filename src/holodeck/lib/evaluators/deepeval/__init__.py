"""Metrics of DeepEval; importing them does not import DeepEval itself."""

import sys

from holodeck.lib.evaluators.deepeval import rag
from holodeck.lib.evaluators.deepeval.base import DeepEvalBaseEvaluator
from holodeck.lib.evaluators.deepeval.config import DEFAULT_MODEL_CONFIG, DeepEvalModelConfig
from holodeck.lib.evaluators.deepeval.errors import DeepEvalError, ProviderNotSupportedError
from holodeck.lib.evaluators.deepeval.geval import GEvalEvaluator
from holodeck.lib.evaluators.deepeval.rag import (
    AnswerRelevancyEvaluator,
    ContextualPrecisionEvaluator,
    ContextualRecallEvaluator,
    ContextualRelevancyEvaluator,
    FaithfulnessEvaluator,
)

__all__ = [
    "DEFAULT_MODEL_CONFIG",
    "AnswerRelevancyEvaluator",
    "ContextualPrecisionEvaluator",
    "ContextualRecallEvaluator",
    "ContextualRelevancyEvaluator",
    "DeepEvalBaseEvaluator",
    "DeepEvalError",
    "DeepEvalModelConfig",
    "FaithfulnessEvaluator",
    "GEvalEvaluator",
    "ProviderNotSupportedError",
]

for _metric in (
    "answer_relevancy",
    "contextual_precision",
    "contextual_recall",
    "contextual_relevancy",
    "faithfulness",
):  # HoloDeck documents one module for each, such as `deepeval.faithfulness`
    sys.modules[f"{__name__}.{_metric}"] = rag
