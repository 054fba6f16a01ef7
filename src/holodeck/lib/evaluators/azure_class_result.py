"""What the result of an evaluator class in the shape of Azure AI Evaluation says."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.azure_adapter import Scale
from holodeck.lib.evaluators.base import to_python
from holodeck.lib.suggestions import did_you_mean_or_list
from holodeck.lib.text import one_line

_ABOUT_A_SCORE = (
    *("_result", "_passed", "_threshold", "_reason", "_status", "_properties", "_details"),
    *("_prompt_tokens", "_completion_tokens", "_total_tokens", "_finish_reason", "_model"),
    *("_sample_input", "_sample_output"),
)
"""The ends of the keys that belong to a score and are none."""
_VERDICTS = {"pass": True, "fail": False}


@dataclass(frozen=True, slots=True)
class ClassResult:
    """The score of a class, its own threshold and verdict, and the reason."""

    raw: float
    verdict: bool | None
    """Its own; None if it gives none."""
    threshold: float | None
    """Its own, on its scale."""
    reason: str

    def contradiction(self, scale: Scale) -> str | None:
        """Return how the class's verdict differs from its own score and threshold, if it does.

        A threshold that every score or none reaches says nothing.
        """
        if self.verdict is None or self.threshold is None:
            return None
        least = scale.part(self.threshold)
        if not 0 < least <= 1 or (scale.part(self.raw) >= least) is self.verdict:
            return None
        said = "passed" if self.verdict else "failed"
        return (
            f"the class says {said!r}, and its score is {self.raw:g} with its threshold"
            f" {self.threshold:g} on the scale {scale}; see 'scale'"
        )


def read_result(result: Any, score_key: str | None, name: str) -> ClassResult:
    """Return what the result says about one score. Raises EvaluationError without a score.

    Args:
        result: What the class returned.
        score_key: The key of the score; None for the only one.
        name: The class, for messages.
    """
    if not isinstance(result, Mapping):
        raise EvaluationError(f"{name} returned {_shown(result)}; it must return a mapping")
    key = _key_of_score(result, score_key, name)
    reason = _beside(result, key, "reason")
    raw = to_python(result[key])
    verdict = to_python(_beside(result, key, "passed"))
    if not isinstance(verdict, bool):
        verdict = _beside(result, key, "result")
    is_void = verdict in ("not_applicable", "not applicable", "unknown")
    is_skipped = _beside(result, key, "status") not in (None, "completed")
    if raw is None or is_void or is_skipped or (isinstance(raw, float) and math.isnan(raw)):
        raise EvaluationError(f"{name} got no score: {reason or 'it gives no reason'}")
    threshold = to_python(_beside(result, key, "threshold"))
    has_threshold = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    return ClassResult(
        raw,
        verdict if isinstance(verdict, bool) else _VERDICTS.get(str(verdict).lower()),
        float(threshold) if has_threshold else None,
        str(reason or ""),
    )


def _key_of_score(result: Mapping[str, Any], wanted: str | None, name: str) -> str:
    found = [key for key, value in result.items() if _may_be_score(key, value)]
    if wanted is not None:
        if wanted not in found:
            hint = did_you_mean_or_list(wanted, found) or "; it has no score"
            raise EvaluationError(f"score_key: the result of {name} has no score {wanted!r}{hint}")
        return wanted
    # the library repeats each score under older names
    distinct = [
        key
        for key in found
        if not any(
            other != key and key in (f"gpt_{other}", f"{other}_score", f"gpt_{other}_score")
            for other in found
        )
    ]
    if len(distinct) == 1:
        return distinct[0]
    if distinct:
        raise EvaluationError(
            f"{name} returned several scores; write 'score_key' with one of {', '.join(distinct)}"
        )
    raise EvaluationError(f"{name} returned no score; its result is {_shown(result)}")


def _may_be_score(key: Any, value: Any) -> bool:
    if not isinstance(key, str) or key.endswith(_ABOUT_A_SCORE):
        return False
    return value is None or isinstance(to_python(value), bool | int | float)


def _beside(result: Mapping[str, Any], key: str, what: str) -> Any:
    """Return what belongs to a score, such as `fluency_reason` beside `fluency_score`."""
    stems = (key, key.removesuffix("_score"), key.removesuffix("_label"))
    found = (result.get(f"{stem}_{what}") for stem in stems)
    return next((one for one in found if one is not None), None)


def _shown(value: Any) -> str:
    return one_line(repr(value), 160)
