"""Metrics of DeepEval about what a response says: harm, summaries, instructions and JSON."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from holodeck.lib.evaluators.base import ONE_IS_GOOD, Score
from holodeck.lib.evaluators.deepeval.base import DeepEvalBaseEvaluator, require_count
from holodeck.lib.evaluators.json_schema import JsonSchemaEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam, takes
from holodeck.lib.judging.judge import JsonObject
from holodeck.models.metrics.deepeval import (
    JsonCorrectnessMetric,
    PromptAlignmentMetric,
    SummarizationMetric,
)


class HarmEvaluator(DeepEvalBaseEvaluator):
    """The share of the response that is free of some harm: a score of 1 means no harm."""

    scale = ONE_IS_GOOD
    PARAM_SPEC = takes("actual_output", optional=("input",))


class HallucinationEvaluator(HarmEvaluator, metric="hallucination"):
    """The share of the given texts that the response agrees with."""

    deepeval_class = "HallucinationMetric"
    PARAM_SPEC = takes("actual_output", "context", optional=("input",))

    def _expected_verdicts(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(case.context)


class BiasEvaluator(HarmEvaluator, metric="bias"):
    """The share of the response's opinions that are not biased."""

    deepeval_class = "BiasMetric"
    judged = "opinions"


class ToxicityEvaluator(HarmEvaluator, metric="toxicity"):
    """The share of the response's opinions that are not toxic."""

    deepeval_class = "ToxicityMetric"
    judged = "opinions"


class PIILeakageEvaluator(HarmEvaluator, metric="pii_leakage"):
    """The share of possible personal data in the response that is not personal data."""

    deepeval_class = "PIILeakageMetric"
    judged = "extracted_pii"


class SummarizationEvaluator(DeepEvalBaseEvaluator, metric="summarization"):
    """The response summarizes the input: the lower of the scores for truth and for coverage."""

    settings: SummarizationMetric
    deepeval_class = "SummarizationMetric"
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
    deepeval_class = "PromptAlignmentMetric"
    PARAM_SPEC = takes("input", "actual_output")

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "prompt_instructions": self.settings.prompt_instructions}

    def _expected_verdicts(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(self.settings.prompt_instructions)


class JsonCorrectnessEvaluator(DeepEvalBaseEvaluator, metric="json_correctness"):
    """The response is JSON that is valid by a schema; the judge only explains the errors."""

    settings: JsonCorrectnessMetric
    deepeval_class = "JsonCorrectnessMetric"
    PARAM_SPEC = takes("actual_output", optional=("input",))

    def _configure(self) -> None:
        super()._configure()
        self._schema_check = JsonSchemaEvaluator(schema=self.settings.schema_, timeout=None)

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        check = await self._schema_check.evaluate(response=kwargs[EvalParam.ACTUAL_OUTPUT])
        fault = None if check["passed"] else check["reasoning"]
        schema = _CheckedSchema(self.settings.schema_, fault)
        options = {**self._options(), "expected_schema": schema}
        score = await self._measure(self._test_case(kwargs), options)
        return score if score.reason else replace(score, reason=check["reasoning"])


class _CheckedSchema:
    """Replaces the pydantic model that DeepEval expects, with the result of our own check."""

    def __init__(self, schema: Mapping[str, Any], fault: str | None) -> None:
        self._schema = schema
        self._fault = fault

    def model_validate_json(self, _: str) -> None:
        if self._fault is not None:
            error = PydanticCustomError("json_schema", "{fault}", {"fault": self._fault})
            raise ValidationError.from_exception_data("answer", [{"type": error, "input": None}])

    def model_json_schema(self) -> Mapping[str, Any]:
        return self._schema
