"""How well the retrieved passages are ranked, by labels of the documents; computed locally."""

from collections.abc import Mapping, Sequence
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.azure.adapter import load_retrieval_evaluator
from holodeck.lib.evaluators.base import Score, ScoredEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.support.text import plural
from holodeck.models.metrics.azure import (
    MAX_RELEVANCE,
    DocumentRetrievalMetric,
    RetrievalMeasure,
)

_RESULTS: Mapping[RetrievalMeasure, tuple[str, float]] = {
    "ndcg": ("ndcg@3", 1),
    "xdcg": ("xdcg@3", 25 * MAX_RELEVANCE),
    "fidelity": ("fidelity", 1),
    "top1_relevance": ("top1_relevance", MAX_RELEVANCE),
    "top3_max_relevance": ("top3_max_relevance", MAX_RELEVANCE),
    "holes": ("holes_ratio", 1),
}
"""The key of each measure in the library's result, and the largest value it can have."""


class DocumentRetrievalEvaluator(ScoredEvaluator):
    """A measure of Azure AI Evaluation's document retrieval, from 0 to 1.

    A passage belongs to the first document of `relevance` whose name or text it contains. Passages
    of no labeled document are "holes": they count as irrelevant, and the reason says how many.

    """

    settings: DocumentRetrievalMetric
    metric = "document_retrieval"
    extra = "azure"
    libraries = ("azure.ai.evaluation",)
    PARAM_SPEC = ParamSpec(required=frozenset({EvalParam.RETRIEVAL_CONTEXT}))

    _evaluator: Any = None

    async def prepare(self) -> None:
        if self._evaluator is None:
            self._evaluator = await run_in_thread(load_retrieval_evaluator, "holodeck-azure")

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        passages: Sequence[str] = kwargs[EvalParam.RETRIEVAL_CONTEXT]
        documents = list(dict.fromkeys(map(self._document_of, passages)))
        result = await run_in_thread(lambda: self._measure(documents))
        measures = result["document_retrieval_properties"]
        key, largest = _RESULTS[self.settings.measure]
        raw = float(measures[key])
        score = 1 - raw if self.settings.measure == "holes" else raw / largest
        if not 0 <= score <= 1:
            raise EvaluationError(
                f"the library returned {raw} for {key}, 0 to {largest:g} expected"
            )
        listed = ", ".join(f"{name} {measures[key]:.4g}" for name, (key, _) in _RESULTS.items())
        count = plural(len(documents), "document")
        reason = f"{count} found, {measures['holes']} without a label; {listed}"
        raw_scale = f"0-{largest:g}"
        return self._result(Score(score, reason=reason, raw_score=raw, raw_scale=raw_scale))

    def _measure(self, documents: Sequence[str]) -> Any:
        return self._evaluator(
            retrieval_ground_truth=[
                {"document_id": name, "query_relevance_label": label}
                for name, label in self.settings.relevance.items()
            ],
            retrieved_documents=[
                {"document_id": name, "relevance_score": -rank}
                for rank, name in enumerate(documents)
            ],
        )

    def _document_of(self, passage: str) -> str:
        """Return the labeled document that the passage is of, else the passage itself."""
        return next((name for name in self.settings.relevance if name in passage), passage)
