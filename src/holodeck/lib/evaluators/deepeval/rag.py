"""Metrics of DeepEval about a response: by retrieved passages, for harm, and for its task."""

from collections.abc import Mapping
from typing import Any, Protocol

from holodeck.lib.evaluators.base import (
    DEFAULT_THRESHOLD,
    METRIC_S,
    ONE_IS_GOOD,
    BaseEvaluator,
    RetryConfig,
)
from holodeck.lib.evaluators.deepeval.base import DeepEvalBaseEvaluator, require_count
from holodeck.lib.evaluators.param_spec import takes
from holodeck.lib.judging.judge import JsonObject
from holodeck.models.llm import LLMProvider
from holodeck.models.metrics.deepeval import (
    PromptAlignmentMetric,
    RAGMetricType,
    SummarizationMetric,
)


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


class HarmEvaluator(DeepEvalBaseEvaluator):
    """The share of the response that is free of some harm: a score of 1 means no harm."""

    scale = ONE_IS_GOOD
    PARAM_SPEC = takes("actual_output", optional=("input",))


class HallucinationEvaluator(HarmEvaluator, metric="hallucination"):
    """The share of the given texts that the response agrees with."""

    PARAM_SPEC = takes("actual_output", "context", optional=("input",))

    def _expected_verdicts(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(case.context)


class BiasEvaluator(HarmEvaluator, metric="bias"):
    """The share of the response's opinions that are not biased."""

    judged = "opinions"


class ToxicityEvaluator(HarmEvaluator, metric="toxicity"):
    """The share of the response's opinions that are not toxic."""

    judged = "opinions"


class PIILeakageEvaluator(HarmEvaluator, metric="pii_leakage"):
    """The share of possible personal data in the response that is not personal data."""

    judged = "extracted_pii"


class SummarizationEvaluator(DeepEvalBaseEvaluator, metric="summarization"):
    """The response summarizes the input: the lower of the scores for truth and for coverage."""

    settings: SummarizationMetric
    judged = "claims"
    empty_is_wrong = True
    PARAM_SPEC = takes("input", "actual_output")

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "assessment_questions": self.settings.assessment_questions}

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:
        super()._check(answer, metric, case)
        if "questions" in answer:
            require_count("questions", answer["questions"], None)
        if "answers" in answer:
            require_count("answers", answer["answers"], len(metric.assessment_questions))
            for word in answer["answers"]:
                if word.strip().lower() not in {"yes", "no"}:
                    raise ValueError(f"'answers' has {word!r}, which is neither 'yes' nor 'no'")


class PromptAlignmentEvaluator(DeepEvalBaseEvaluator, metric="prompt_alignment"):
    """The share of the instructions that the response follows."""

    settings: PromptAlignmentMetric
    PARAM_SPEC = takes("input", "actual_output")

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "prompt_instructions": self.settings.prompt_instructions}

    def _expected_verdicts(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(self.settings.prompt_instructions)
