"""Metrics of DeepEval; importing them does not import DeepEval itself."""

import sys

from holodeck.lib.evaluators.deepeval import answers, config
from holodeck.lib.evaluators.deepeval.answers import (
    AnswerRelevancyEvaluator,
    ContextualPrecisionEvaluator,
    ContextualRecallEvaluator,
    ContextualRelevancyEvaluator,
    FaithfulnessEvaluator,
)
from holodeck.lib.evaluators.deepeval.base import DeepEvalBaseEvaluator
from holodeck.lib.evaluators.deepeval.config import (
    DEFAULT_MODEL_CONFIG,
    DeepEvalError,
    DeepEvalModelConfig,
    ProviderNotSupportedError,
)
from holodeck.lib.evaluators.deepeval.geval import GEvalEvaluator

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

# HoloDeck documents one module for each of these metrics, such as `deepeval.faithfulness`.
for _metric in (
    "answer_relevancy",
    "contextual_precision",
    "contextual_recall",
    "contextual_relevancy",
    "faithfulness",
):
    sys.modules[f"{__name__}.{_metric}"] = answers
sys.modules[f"{__name__}.errors"] = config
