"""Metrics of DeepEval about retrieved passages, and about a response by them."""

from collections.abc import Mapping
from typing import Any, Protocol

from holodeck.lib.evaluators.base import DEFAULT_THRESHOLD, METRIC_S, BaseEvaluator, RetryConfig
from holodeck.lib.evaluators.deepeval.base import DeepEvalBaseEvaluator, require_count
from holodeck.lib.evaluators.param_spec import takes
from holodeck.lib.judging.judge import JsonObject
from holodeck.models.llm import LLMProvider
from holodeck.models.metrics.deepeval import RAGMetricType


class RAGEvaluator(DeepEvalBaseEvaluator):
    """Scores retrieved passages, or a response by them.

    Args:
        model_config: The judge model; required if no `judge` is given.
        threshold: Score from 0 to 1 to reach.
        include_reason: Whether the judge gives a reason, with an extra request.
        timeout: Seconds for an evaluation, not counting the wait for a free slot; None for no
            limit.
        retry_config: How an evaluation is retried.
        options: `strict_mode`, whether only a perfect score passes; `judge`, a judge that several
            metrics share; `settings`.
    """

    def __init__(
        self,
        *,
        model_config: LLMProvider | None = None,
        threshold: float = DEFAULT_THRESHOLD,
        include_reason: bool = True,
        timeout: float | None = METRIC_S,
        retry_config: RetryConfig | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            model_config=model_config,
            threshold=threshold,
            include_reason=include_reason,
            timeout=timeout,
            retry_config=retry_config,
            **options,
        )


class FaithfulnessEvaluator(RAGEvaluator, metric="faithfulness"):
    """The share of the response's claims that the passages do not contradict."""

    judged = "claims"
    counted = "claims"
    without_items = "the judge found no claim in the response"
    empty_is_wrong = True
    PARAM_SPEC = takes("input", "actual_output", "retrieval_context")


class AnswerRelevancyEvaluator(RAGEvaluator, metric="answer_relevancy"):
    """The share of the response's statements that are relevant to the question."""

    judged = "statements"
    empty_is_wrong = True
    PARAM_SPEC = takes("input", "actual_output")

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:
        super()._check(answer, metric, case)
        if "statements" in answer:  # a response that is not empty has statements
            require_count("statements", answer["statements"], None)


class ContextualRelevancyEvaluator(RAGEvaluator, metric="contextual_relevancy"):
    """The share of the passages' statements that are relevant to the question."""

    PARAM_SPEC = takes("input", "retrieval_context", optional=("actual_output",))


class ContextualPrecisionEvaluator(RAGEvaluator, metric="contextual_precision"):
    """How far the useful passages rank above the others."""

    PARAM_SPEC = takes("input", "expected_output", "retrieval_context", optional=("actual_output",))

    def _expected_verdicts(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(case.retrieval_context)


class ContextualRecallEvaluator(RAGEvaluator, metric="contextual_recall"):
    """The share of the ground truth's sentences that the passages support."""

    PARAM_SPEC = takes("input", "expected_output", "retrieval_context", optional=("actual_output",))


class RAGEvaluatorConstructor(Protocol):
    """The common constructor of the metrics about retrieved passages."""

    def __call__(
        self,
        *,
        model_config: LLMProvider | None = None,
        threshold: float = 0.5,
        include_reason: bool = True,
        timeout: float | None = METRIC_S,
        retry_config: RetryConfig | None = None,
    ) -> BaseEvaluator:
        """Return the evaluator with the judge model `model_config`. Raises ConfigError."""
        ...


RAG_EVALUATOR_MAP: Mapping[RAGMetricType, RAGEvaluatorConstructor] = {
    RAGMetricType.FAITHFULNESS: FaithfulnessEvaluator,
    RAGMetricType.CONTEXTUAL_RELEVANCY: ContextualRelevancyEvaluator,
    RAGMetricType.CONTEXTUAL_PRECISION: ContextualPrecisionEvaluator,
    RAGMetricType.CONTEXTUAL_RECALL: ContextualRecallEvaluator,
    RAGMetricType.ANSWER_RELEVANCY: AnswerRelevancyEvaluator,
}
