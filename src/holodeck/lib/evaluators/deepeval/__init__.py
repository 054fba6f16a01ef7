"""Metrics of DeepEval; importing them does not import DeepEval itself."""

import sys

from holodeck.lib.evaluators.deepeval import base, rag
from holodeck.lib.evaluators.deepeval.base import (
    DEFAULT_MODEL_CONFIG,
    DeepEvalBaseEvaluator,
    DeepEvalError,
    DeepEvalModelConfig,
    ProviderNotSupportedError,
)
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

# HoloDeck documents these modules, such as `deepeval.faithfulness`.
_CONTEXTUAL = ("contextual_precision", "contextual_recall", "contextual_relevancy")
for _name in ("answer_relevancy", "faithfulness", *_CONTEXTUAL):
    sys.modules[f"{__name__}.{_name}"] = rag
for _name in ("config", "errors"):
    sys.modules[f"{__name__}.{_name}"] = base
