"""Metrics of ours: one score from 0 to 1, a threshold, and what the answer is compared with."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypedDict, Unpack

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import BaseEvaluator, RetryConfig, Score
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec


class EvaluatorOptions(TypedDict, total=False):
    """How every metric is run."""

    timeout: float | None
    retry_config: RetryConfig | None


class ComparisonOptions(EvaluatorOptions, total=False):
    """How every metric that compares is run, and what it compares with."""

    value: str | None
    values: Sequence[str] | None


class ScoredEvaluator(BaseEvaluator):
    """A metric that gives one Grade.

    Its result has the score under `score` and under the metric's own name, `passed` and
    `reasoning`. With a threshold, passed is `score >= threshold` (0 counts); without one it is the
    metric's own verdict, or None for a metric that has none and is reported only.
    """

    metric: ClassVar[str]

    def __init__(self, threshold: float | None = None, **how: Unpack[EvaluatorOptions]) -> None:
        super().__init__(**how)
        self.threshold = threshold

    def _row(self, grade: Score, **more: float) -> dict[str, Any]:
        passed = grade.passed if self.threshold is None else grade.score >= self.threshold
        return {
            **more,
            self.metric: grade.score,
            "score": grade.score,
            "passed": passed,
            "reasoning": grade.reason,
        }

    def _response(self, kwargs: Mapping[str, Any]) -> str:
        response = kwargs[EvalParam.RESPONSE]
        if not isinstance(response, str):
            raise EvaluationError(
                f"{self.name} compares text, and response is a {type(response).__name__}"
            )
        return response


class ComparingEvaluator(ScoredEvaluator):
    """Compares the answer with `value` or any of `values`, else with the case's `ground_truth`."""

    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset({EvalParam.RESPONSE, EvalParam.GROUND_TRUTH})
    )

    def __init__(
        self,
        threshold: float | None = None,
        *,
        value: str | None = None,
        values: Sequence[str] | None = None,
        **how: Unpack[EvaluatorOptions],
    ) -> None:
        super().__init__(threshold, **how)
        self._values = one_or_many(value, values)

    def required_params(self) -> frozenset[EvalParam]:
        if self._values is None:
            return self.PARAM_SPEC.required
        return self.PARAM_SPEC.required - {EvalParam.GROUND_TRUTH}

    def _references(self, kwargs: Mapping[str, Any]) -> Sequence[str]:
        """The texts to compare with, at least one."""
        return self._values or (kwargs[EvalParam.GROUND_TRUTH],)


def one_or_many(value: str | None, values: Sequence[str] | None) -> tuple[str, ...] | None:
    """What was configured to compare with; None if nothing was. Raises ConfigError."""
    if value is not None and values is not None:
        raise ConfigError("value", "write either 'value' or 'values', not both")
    if value is None and values is None:
        return None
    key = "values" if value is None else "value"
    wanted = tuple(values) if values is not None else (str(value),)
    if not wanted or any(not text.strip() for text in wanted):
        raise ConfigError(key, "is empty, and every answer would do; write what to compare with")
    return wanted


def quote(text: str, limit: int = 80) -> str:
    """The text in quotes on one line, cut to about `limit` characters."""
    return repr(text if len(text) <= limit else f"{text[: limit - 1]}…")
