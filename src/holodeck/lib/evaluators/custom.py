"""A metric that the user wrote: any callable, named `module:callable`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, Unpack

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import Observation, Score, plain
from holodeck.lib.evaluators.scored import EvaluatorOptions, ScoredEvaluator
from holodeck.lib.registry import load_callable
from holodeck.lib.threads import call_user_function

_KEYS = ("score", "passed", "reason")
_WANTED = (
    "return a number from 0 to 1, true or false, a Grade, or a dict with score, passed, reason"
)


class CustomEvaluator(ScoredEvaluator):
    """Calls the user's code with the Observation; a plain function runs in a thread.

    What it returns becomes the grade: a number, a bool, a Grade, or a dict with score, passed and
    reason. Without `passed` and without a threshold, a score of at least 0.5 passes; with both, the
    answer must satisfy both. Anything else that is returned is an error.
    """

    metric = "custom"
    uses_observation = True

    def __init__(
        self,
        target: str | Callable[[Observation], Any],
        threshold: float | None = None,
        *,
        base_dir: Path | None = None,
        **how: Unpack[EvaluatorOptions],
    ) -> None:
        super().__init__(threshold, **how)
        self._call = load_callable(target, base_dir) if isinstance(target, str) else target
        self._label = target if isinstance(target, str) else getattr(target, "__name__", "custom")

    @property
    def name(self) -> str:
        return self._label

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        observation: Observation = kwargs["observation"]
        grade = _as_grade(await self._answer(observation), self.name)
        row = self._row(grade)
        if grade.passed is False:
            row["passed"] = False
        elif grade.passed is None and self.threshold is None:
            row["passed"] = grade.score >= 0.5
        return row

    async def _answer(self, observation: Observation) -> Any:
        try:
            return await call_user_function(partial(self._call, observation), self._call)
        except SystemExit as error:
            raise EvaluationError(f"{self.name} called sys.exit({error.code!r})") from error


def _as_grade(value: Any, name: str) -> Score:
    value = plain(value)
    match value:
        case Score():
            grade = _from_mapping(asdict(value), name)
        case bool():
            grade = Score(float(value), value)
        case Real():
            grade = Score(float(value))
        case Mapping():
            grade = _from_mapping(value, name)
        case _:
            raise EvaluationError(f"{name} returned a {type(value).__name__}; {_WANTED}")
    if not math.isfinite(grade.score) or not 0 <= grade.score <= 1:
        raise EvaluationError(f"{name} returned the score {grade.score}; it must be from 0 to 1")
    return grade


def _from_mapping(value: Mapping[Any, Any], name: str) -> Score:
    unknown = [key for key in value if key not in _KEYS]
    if unknown:
        raise EvaluationError(f"{name} returned the unknown key {unknown[0]!r}; {_WANTED}")
    score, passed, reason = (plain(value.get(key)) for key in _KEYS)
    if passed is not None and not isinstance(passed, bool):
        raise EvaluationError(f"{name} returned passed={passed!r}; it must be true or false")
    if score is None and passed is not None:
        score = float(passed)
    if isinstance(score, bool) or not isinstance(score, Real):
        raise EvaluationError(f"{name} returned score={score!r}; it must be a number")
    return Score(float(score), passed, "" if reason is None else str(reason))
