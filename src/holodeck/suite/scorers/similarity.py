"""The scorer `similarity`: the answer means about the same as the expected one."""

from functools import cached_property

from holodeck.errors import ConfigError
from holodeck.lib.evaluators.nlp_metrics import SIMILARITY_THRESHOLD, Likeness
from holodeck.lib.judging.judge import Judges
from holodeck.suite.results import AgentResult, ScoreResult
from holodeck.suite.scenario import Scenario


class SimilarityScorer:
    """Passes an answer whose embedding has a cosine of at least 0.7 with the expected one's, or as
    `metadata: {similarity_threshold: …}` says. It blocks: coroutines call it in a thread.
    """

    name: str = "similarity"

    def __init__(self) -> None:
        self._judges = Judges()

    @cached_property
    def _model(self) -> Likeness:
        return self._judges.embeddings()

    def score(self, scenario: Scenario, result: AgentResult) -> ScoreResult:
        """The cosine, and 0 where it is negative or the answer is blank."""
        if scenario.expected_output is None or not scenario.expected_output.strip():
            raise ConfigError("expected_output", "'similarity' compares with it; write it")
        threshold = _threshold(scenario)
        found = self._model.likeness(scenario.expected_output, result.output)
        passed = found >= threshold
        return ScoreResult(
            scenario_id=scenario.id,
            scorer_name=self.name,
            score=found,
            passed=passed,
            explanation=f"similarity {found:.3f}; wanted {threshold:g} or more",
            details={"similarity": found, "threshold": threshold},
        )


def _threshold(scenario: Scenario) -> float:
    wanted = scenario.metadata.get("similarity_threshold", SIMILARITY_THRESHOLD)
    is_number = isinstance(wanted, int | float) and not isinstance(wanted, bool)
    if not is_number or not 0 < wanted <= 1:
        raise ConfigError(
            "metadata.similarity_threshold",
            f"found {wanted!r}; wanted a number above 0 and up to 1",
        )
    return float(wanted)
