"""How alike answer and reference are in meaning, by a model of embeddings in the process."""

from collections.abc import Callable
from functools import cached_property
from typing import Protocol, Unpack

from holodeck.lib.evaluators.nlp_metrics import Overlap, OverlapEvaluator
from holodeck.lib.evaluators.scored import ComparisonOptions
from holodeck.lib.judging.judges import embedding_model
from holodeck.lib.threads import run_in_thread

THRESHOLD = 0.7
"""What most paraphrases reach and no text about something else."""


class Likeness(Protocol):
    """Compares meanings."""

    def likeness(self, one: str, other: str) -> float:
        """How alike two texts are, from 0 to 1."""
        ...


class SemanticSimilarityEvaluator(OverlapEvaluator):
    """Cosine of the embeddings of answer and reference, at least 0; the best reference counts.

    It sees what texts are about and not whether they are true: a denial is close to what it denies.

    Args:
        threshold: Score to reach; 0.7 if not given.
        embeddings: Gives what compares, and may block; else the model that holodeck knows.
    """

    metric = "semantic_similarity"

    def __init__(
        self,
        threshold: float | None = None,
        *,
        embeddings: Callable[[], Likeness] | None = None,
        **comparison: Unpack[ComparisonOptions],
    ) -> None:
        super().__init__(THRESHOLD if threshold is None else threshold, **comparison)
        self._embeddings = embeddings or embedding_model

    @cached_property
    def _model(self) -> Likeness:
        return self._embeddings()

    async def prepare(self) -> None:
        await run_in_thread(lambda: self._model)

    def _compare(self, response: str, reference: str) -> Overlap:
        score = self._model.likeness(response, reference)
        return Overlap(score, f"cosine of the meanings {score:.2f}")
