"""Metrics of DeepEval about retrieved passages: `type: rag`."""

from collections.abc import Mapping
from typing import Any, Protocol

from holodeck.lib.evaluators.base import DEFAULT_THRESHOLD, METRIC_S, BaseEvaluator, RetryConfig
from holodeck.lib.evaluators.deepeval.base import DeepEvalBaseEvaluator, require_count
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.judging.judge import JsonObject
from holodeck.models.llm import LLMProvider
from holodeck.models.metrics.deepeval import RAGMetricType


class RAGEvaluator(DeepEvalBaseEvaluator):
    """Scores retrieved passages, or a response by them.

    Args:
        model_config: The judge model; required if no `judge` is given.
        threshold: Score from 0 to 1 to reach.
        include_reason: Whether the judge gives a reason, with one extra request.
        timeout: Seconds for one evaluation, not counting the wait for a free slot; None for no
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


class FaithfulnessEvaluator(RAGEvaluator):
    """The share of the response's claims that the passages do not contradict."""

    metric = "faithfulness"
    deepeval_class = "FaithfulnessMetric"
    judged = "claims"
    counted = "claims"
    without_items = "the judge found no claim in the response"
    empty_is_wrong = True
    PARAM_SPEC = ParamSpec(
        required=frozenset({EvalParam.INPUT, EvalParam.ACTUAL_OUTPUT, EvalParam.RETRIEVAL_CONTEXT})
    )


class AnswerRelevancyEvaluator(RAGEvaluator):
    """The share of the response's statements that are relevant to the question."""

    metric = "answer_relevancy"
    deepeval_class = "AnswerRelevancyMetric"
    judged = "statements"
    empty_is_wrong = True
    PARAM_SPEC = ParamSpec(required=frozenset({EvalParam.INPUT, EvalParam.ACTUAL_OUTPUT}))

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:
        super()._check(answer, metric, case)
        if "statements" in answer:  # a response that is not empty has statements
            require_count("statements", answer["statements"], None)


class ContextualRelevancyEvaluator(RAGEvaluator):
    """The share of the passages' statements that are relevant to the question."""

    metric = "contextual_relevancy"
    deepeval_class = "ContextualRelevancyMetric"
    PARAM_SPEC = ParamSpec(
        required=frozenset({EvalParam.INPUT, EvalParam.RETRIEVAL_CONTEXT}),
        optional=frozenset({EvalParam.ACTUAL_OUTPUT}),
    )


class ContextualPrecisionEvaluator(RAGEvaluator):
    """How far the useful passages rank above the others."""

    metric = "contextual_precision"
    deepeval_class = "ContextualPrecisionMetric"
    PARAM_SPEC = ParamSpec(
        required=frozenset(
            {EvalParam.INPUT, EvalParam.EXPECTED_OUTPUT, EvalParam.RETRIEVAL_CONTEXT}
        ),
        optional=frozenset({EvalParam.ACTUAL_OUTPUT}),
    )

    def _expected_verdicts(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(case.retrieval_context)


class ContextualRecallEvaluator(RAGEvaluator):
    """The share of the ground truth's sentences that the passages support."""

    metric = "contextual_recall"
    deepeval_class = "ContextualRecallMetric"
    PARAM_SPEC = ParamSpec(
        required=frozenset(
            {EvalParam.INPUT, EvalParam.EXPECTED_OUTPUT, EvalParam.RETRIEVAL_CONTEXT}
        ),
        optional=frozenset({EvalParam.ACTUAL_OUTPUT}),
    )


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
