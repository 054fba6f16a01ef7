"""Metrics about retrieved passages."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from holodeck.lib.evaluators.base import BaseEvaluator, RetryConfig
from holodeck.lib.evaluators.deepeval.base import DeepEvalEvaluator, require_count
from holodeck.lib.evaluators.param_spec import EvalParam as P
from holodeck.lib.evaluators.param_spec import ParamSpec
from holodeck.lib.judging.judge import JsonObject, Judge
from holodeck.models.evaluation import RAGMetricType
from holodeck.models.llm import LLMProvider


class RAGEvaluator(DeepEvalEvaluator):
    """A metric about retrieved passages.

    Args:
        model_config: The model that judges; needed where no `judge` is given.
        threshold: Score from 0 to 1 to reach.
        include_reason: Whether the judge says why, which costs one call more.
        timeout: Seconds for one evaluation, waiting for a slot not counted; None for no limit.
        retry_config: How often an evaluation is tried again.
        strict_mode: Whether only a perfect score counts.
        judge: The judge, where several metrics share one.
    """

    def __init__(
        self,
        *,
        model_config: LLMProvider | None = None,
        threshold: float = 0.5,
        include_reason: bool = True,
        timeout: float | None = 60.0,
        retry_config: RetryConfig | None = None,
        strict_mode: bool = False,
        judge: Judge | None = None,
    ) -> None:
        super().__init__(
            model_config=model_config,
            threshold=threshold,
            include_reason=include_reason,
            timeout=timeout,
            retry_config=retry_config,
            strict_mode=strict_mode,
            judge=judge,
        )


class FaithfulnessEvaluator(RAGEvaluator):
    """The share of the answer's claims that the passages do not contradict."""

    metric = "faithfulness"
    kind = "FaithfulnessMetric"
    empty_is_wrong = True
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset({P.INPUT, P.ACTUAL_OUTPUT, P.RETRIEVAL_CONTEXT}),
        uses_retrieval_context=True,
    )

    def _judged(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(metric.claims)

    def _unjudged(self, metric: Any, case: Any) -> str | None:  # noqa: ARG002
        return None if metric.claims else "the judge found no claim in the answer"


class AnswerRelevancyEvaluator(RAGEvaluator):
    """The share of the answer's statements that are about the question."""

    metric = "answer_relevancy"
    kind = "AnswerRelevancyMetric"
    empty_is_wrong = True
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(required=frozenset({P.INPUT, P.ACTUAL_OUTPUT}))

    def _judged(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(metric.statements)

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:
        super()._check(answer, metric, case)
        if "statements" in answer:  # an answer that is not empty says something
            require_count("statements", answer["statements"], None)


class ContextualRelevancyEvaluator(RAGEvaluator):
    """The share of the passages' statements that are about the question."""

    metric = "contextual_relevancy"
    kind = "ContextualRelevancyMetric"
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset({P.INPUT, P.RETRIEVAL_CONTEXT}),
        optional=frozenset({P.ACTUAL_OUTPUT}),
        uses_retrieval_context=True,
    )


class ContextualPrecisionEvaluator(RAGEvaluator):
    """How far up the useful passages stand among all."""

    metric = "contextual_precision"
    kind = "ContextualPrecisionMetric"
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset({P.INPUT, P.EXPECTED_OUTPUT, P.RETRIEVAL_CONTEXT}),
        optional=frozenset({P.ACTUAL_OUTPUT}),
        uses_retrieval_context=True,
    )

    def _judged(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(case.retrieval_context)


class ContextualRecallEvaluator(RAGEvaluator):
    """The share of the right answer's sentences that the passages support."""

    metric = "contextual_recall"
    kind = "ContextualRecallMetric"
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset({P.INPUT, P.EXPECTED_OUTPUT, P.RETRIEVAL_CONTEXT}),
        optional=frozenset({P.ACTUAL_OUTPUT}),
        uses_retrieval_context=True,
    )


class RAGEvaluatorConstructor(Protocol):
    """How every metric about retrieved passages is made."""

    def __call__(
        self,
        *,
        model_config: LLMProvider | None = None,
        threshold: float = 0.5,
        include_reason: bool = True,
        timeout: float | None = 60.0,
        retry_config: RetryConfig | None = None,
    ) -> BaseEvaluator:
        """A metric that asks the judge `model_config`. Raises ConfigError."""
        ...


RAG_EVALUATOR_MAP: Mapping[RAGMetricType, RAGEvaluatorConstructor] = {
    RAGMetricType.FAITHFULNESS: FaithfulnessEvaluator,
    RAGMetricType.CONTEXTUAL_RELEVANCY: ContextualRelevancyEvaluator,
    RAGMetricType.CONTEXTUAL_PRECISION: ContextualPrecisionEvaluator,
    RAGMetricType.CONTEXTUAL_RECALL: ContextualRecallEvaluator,
    RAGMetricType.ANSWER_RELEVANCY: AnswerRelevancyEvaluator,
}
