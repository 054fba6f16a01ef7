"""Metrics of DeepEval; importing them does not import DeepEval itself."""

from holodeck.lib.evaluators.deepeval.geval import GEvalEvaluator
from holodeck.lib.evaluators.deepeval.rag import (
    AnswerRelevancyEvaluator,
    ContextualPrecisionEvaluator,
    ContextualRecallEvaluator,
    ContextualRelevancyEvaluator,
    FaithfulnessEvaluator,
)

__all__ = [
    "AnswerRelevancyEvaluator",
    "ContextualPrecisionEvaluator",
    "ContextualRecallEvaluator",
    "ContextualRelevancyEvaluator",
    "FaithfulnessEvaluator",
    "GEvalEvaluator",
]
