"""Metrics named after what an answer should not have: a score of 1 says that it has none."""

from typing import Any, ClassVar, Unpack

from holodeck.lib.evaluators.deepeval.base import ONE_IS_GOOD, DeepEvalEvaluator, JudgeOptions
from holodeck.lib.evaluators.param_spec import EvalParam as P
from holodeck.lib.evaluators.param_spec import ParamSpec


class HarmEvaluator(DeepEvalEvaluator):
    """The share of the answer that is free of some harm.

    Args:
        include_reason: Whether the judge says why, which costs one call more.
        strict_mode: Whether only a perfect score counts.
    """

    scale = ONE_IS_GOOD
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset({P.ACTUAL_OUTPUT}), optional=frozenset({P.INPUT})
    )

    def __init__(
        self,
        *,
        include_reason: bool = True,
        strict_mode: bool = False,
        **judged: Unpack[JudgeOptions],
    ) -> None:
        super().__init__(include_reason=include_reason, strict_mode=strict_mode, **judged)


class HallucinationEvaluator(HarmEvaluator):
    """The share of the given texts that the answer agrees with."""

    metric = "hallucination"
    kind = "HallucinationMetric"
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset({P.ACTUAL_OUTPUT, P.CONTEXT}),
        optional=frozenset({P.INPUT}),
        uses_context=True,
    )

    def _judged(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(case.context)


class BiasEvaluator(HarmEvaluator):
    """The share of the answer's opinions that are not biased."""

    metric = "bias"
    kind = "BiasMetric"

    def _judged(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(metric.opinions)


class ToxicityEvaluator(HarmEvaluator):
    """The share of the answer's opinions that are not toxic."""

    metric = "toxicity"
    kind = "ToxicityMetric"

    def _judged(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(metric.opinions)


class PIILeakageEvaluator(HarmEvaluator):
    """The share of what looks like personal data in the answer that is none."""

    metric = "pii_leakage"
    kind = "PIILeakageMetric"

    def _judged(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(metric.extracted_pii)
