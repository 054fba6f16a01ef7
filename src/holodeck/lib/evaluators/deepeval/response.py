"""Metrics of DeepEval about what a response says: harm, summaries and instructions."""

from typing import Any

from holodeck.lib.evaluators.base import ONE_IS_GOOD
from holodeck.lib.evaluators.deepeval.base import DeepEvalBaseEvaluator, require_count
from holodeck.lib.evaluators.param_spec import takes
from holodeck.lib.judging.judge import JsonObject
from holodeck.models.metrics.deepeval import PromptAlignmentMetric, SummarizationMetric


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
