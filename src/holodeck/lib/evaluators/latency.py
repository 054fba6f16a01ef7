"""The metric `latency`: the agent answered in time."""

from typing import Any, Unpack

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import Observation, Score
from holodeck.lib.evaluators.scored import EvaluatorOptions, ScoredEvaluator


class LatencyEvaluator(ScoredEvaluator):
    """The agent took at most `max_ms`. The score is 1 up to there, then max_ms / time taken."""

    metric = "latency"
    uses_observation = True

    def __init__(
        self,
        threshold: float | None = None,
        *,
        max_ms: float,
        **how: Unpack[EvaluatorOptions],
    ) -> None:
        super().__init__(threshold, **how)
        self._max_ms = max_ms

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        observation: Observation = kwargs["observation"]
        taken = observation.latency_ms
        if taken is None:
            raise EvaluationError(f"{self.name} needs latency_ms, which was not measured")
        passed = taken <= self._max_ms
        score = 1.0 if passed else self._max_ms / taken
        return self._row(Score(score, passed, f"{taken:.0f} ms of {self._max_ms:.0f} ms allowed"))
