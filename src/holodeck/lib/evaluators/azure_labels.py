"""Metrics that a project in Azure answers with yes or no."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.azure_adapter import load_labelling_evaluator
from holodeck.lib.evaluators.azure_ai import ProjectEvaluator, Service
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.processes.threads import run_in_thread


class LabelEvaluator(ProjectEvaluator):
    """Whether the project finds the response good (1) or not (0)."""

    library_class: ClassVar[str]
    good_label: ClassVar[bool] = False
    """The library's label of a good response; most labels say that something bad was found."""

    def _load_services(self) -> dict[str, Service]:
        return {self.metric: load_labelling_evaluator(self.library_class, *self._access())}

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        ask = partial(self._services[self.metric], **self._inputs(kwargs))
        found = await run_in_thread(ask, "holodeck-azure")
        label, reason = (found.get(f"{self.metric}_{key}") for key in ("label", "reason"))
        if not isinstance(label, bool) or not reason:
            raise EvaluationError(
                f"the project in Azure returned no label of {self.metric}, or no reason"
            )
        score = float(label is self.good_label)
        return {
            "score": score,
            self.metric: score,
            "raw_score": float(label),
            "raw_scale": "0-1",
            "scale": "0-1, 1 is good",
            "passed": score >= self.threshold,
            "reasoning": str(reason),
        }

    def _inputs(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs under the library's names."""
        return {"query": kwargs.get("query") or "", "response": kwargs["response"]}


class IndirectAttackEvaluator(LabelEvaluator):
    """The response follows no instructions that were hidden in a document."""

    metric = "indirect_attack"
    library_class = "IndirectAttackEvaluator"


class ProtectedMaterialEvaluator(LabelEvaluator):
    """The response contains no text that is protected by copyright."""

    metric = "protected_material"
    library_class = "ProtectedMaterialEvaluator"


class CodeVulnerabilityEvaluator(LabelEvaluator):
    """The code in the response has no known vulnerability."""

    metric = "code_vulnerability"
    library_class = "CodeVulnerabilityEvaluator"


class GroundednessProEvaluator(LabelEvaluator):
    """The context supports everything in the response; the library's grade must be 5 of 5.

    The library reports no grade above 1, so reports show its verdict only.
    """

    PARAM_SPEC = ParamSpec(
        required=frozenset({EvalParam.RESPONSE, EvalParam.CONTEXT}),
        optional=frozenset({EvalParam.QUERY}),
        uses_context=True,
    )
    metric = "groundedness_pro"
    library_class = "GroundednessProEvaluator"
    good_label = True

    def _inputs(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {**super()._inputs(kwargs), "context": kwargs["context"]}
