"""The scorer `similarity`: the answer means about the same as the expected text."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

from holodeck.errors import ConfigError
from holodeck.lib.judging.judges import Judges
from holodeck.suite.results import AgentResult, ScoreResult
from holodeck.suite.scenario import Scenario
from holodeck.suite.scorers.base import SIMILARITY, BuiltInScorer

if TYPE_CHECKING:
    from holodeck.lib.local_models.runtime import EmbeddingModel

MODEL = "all-MiniLM-L6-v2"
DEFAULT_THRESHOLD = 0.7


class SimilarityScorer(BuiltInScorer):
    """Passes an answer whose embedding has a cosine of at least the threshold with the expected
    one's. It blocks: coroutines call it in a thread.

    Args:
        model_name: The only model is all-MiniLM-L6-v2, to whose cosines the threshold belongs.
        threshold: Above 0 and up to 1; `metadata: {similarity_threshold: …}` of a scenario wins.

    Raises ConfigError for another model or threshold.
    """

    name: str = SIMILARITY

    def __init__(self, model_name: str = MODEL, threshold: float = DEFAULT_THRESHOLD) -> None:
        if model_name.removeprefix("sentence-transformers/").lower() != MODEL.lower():
            raise ConfigError("model_name", f"found {model_name!r}; the only model is {MODEL!r}")
        self.model_name = model_name
        self.threshold = _checked_threshold("threshold", threshold)

    @cached_property
    def _model(self) -> "EmbeddingModel":
        return Judges().embeddings()

    def _score(self, scenario: Scenario, result: AgentResult) -> ScoreResult:
        if scenario.expected_output is None or not scenario.expected_output.strip():
            raise ConfigError("expected_output", "'similarity' compares with it; write it")
        written = scenario.metadata.get("similarity_threshold", self.threshold)
        threshold = _checked_threshold("metadata.similarity_threshold", written)
        similarity = self._model.similarity(scenario.expected_output, result.output)
        return self._row(
            scenario,
            similarity,
            passed=similarity >= threshold,
            explanation=f"similarity {similarity:.3f}; expected {threshold:g} or more",
            details={"cosine_similarity": similarity, "threshold": threshold},
        )


def _checked_threshold(location: str, threshold: Any) -> float:
    is_number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    if not is_number or not 0 < threshold <= 1:
        raise ConfigError(location, f"found {threshold!r}; expected a number above 0 and up to 1")
    return float(threshold)
