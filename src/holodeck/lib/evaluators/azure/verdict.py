"""What a judge may answer to a prompt of Azure AI Evaluation, and what its score means."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holodeck.errors import EvaluationError

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scale:
    """The whole numbers of a scale, from the worst to the best."""

    worst: int
    best: int

    def __str__(self) -> str:
        return f"{min(self.worst, self.best)}-{max(self.worst, self.best)}"

    def score(self, raw: Any) -> float:
        """The number on a scale of 0 (worst) to 1 (best). Raises EvaluationError."""
        number = isinstance(raw, int | float) and not isinstance(raw, bool)
        if not number or not math.isfinite(raw) or not 0 <= self._part(raw) <= 1:
            raise EvaluationError(f"the score {raw!r} is none of {self}")
        return self._part(raw)

    def schema(self, more: Mapping[str, Any]) -> JsonObject:
        """What the judge answers: its reason first, so that the score follows from it."""
        scores = range(min(self.worst, self.best), max(self.worst, self.best) + 1)
        keys = {
            **more,
            "reason": {"type": "string"},
            "score": {"type": ["integer", "null"], "enum": [*scores, None]},
            "status": {"type": "string", "enum": ["completed", "skipped"]},
        }
        return {"type": "object", "properties": keys, "required": ["reason", "score"]}

    def _part(self, raw: float) -> float:
        return (raw - self.worst) / (self.best - self.worst)


def parse_verdict(verdict: JsonObject) -> JsonObject:
    """A verdict that fits the schema and can be used. Raises ValueError in words for the judge."""
    if not verdict["reason"].strip():
        raise ValueError("reason: is empty")
    if verdict["score"] is None and verdict.get("status") != "skipped":
        raise ValueError("score: is null, and nothing was skipped")
    return verdict
