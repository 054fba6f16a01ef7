"""A metric that the user wrote: any callable, named `module:callable`."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, Unpack

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import (
    EvaluatorOptions,
    Observation,
    Score,
    ScoredEvaluator,
    plain,
    quote,
)
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
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


NOTHING_TO_COMPARE = "nothing to compare: the case has neither ground_truth nor expected_tools"


class PassFailEvaluator(ScoredEvaluator):
    """The answer is not blank and holds the case's `ground_truth`, whatever its case, and every
    expected tool that is only a name was called by exactly that name.

    Without a ground truth and expected tools there is nothing to compare, and the row gives no
    verdict.
    """

    metric = "passfail"
    uses_observation = True
    PARAM_SPEC = ParamSpec(frozenset({EvalParam.RESPONSE}), frozenset({EvalParam.GROUND_TRUTH}))

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        seen: Observation | None = kwargs.get("observation")
        wanted = kwargs.get(EvalParam.GROUND_TRUTH)
        if wanted is None and (seen is None or seen.expected_tools is None):
            return self._row(Score(0.0, None, NOTHING_TO_COMPARE))
        wrong = list(_wrong(self._response(kwargs), wanted, seen))
        reason = "; ".join(wrong) or "answer and tool calls are as expected"
        return self._row(Score(float(not wrong), not wrong, reason))


def _wrong(answer: str, wanted: str | None, seen: Observation | None) -> Iterator[str]:
    if not answer.strip():
        yield "the agent answered nothing"
    if wanted is not None and wanted.casefold() not in answer.casefold():
        yield f"{quote(wanted)} is not in {quote(answer)}"
    names = [name for name in (seen and seen.expected_tools) or () if isinstance(name, str)]
    called = {call.name for call in seen.tool_calls} if seen and names else set()
    for name in names:
        if name not in called:
            yield f"no tool called exactly {name!r} was called"
