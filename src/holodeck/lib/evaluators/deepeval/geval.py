"""DeepEval's G-Eval: criteria in your own words, for a response or a conversation."""

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

from holodeck.errors import ConfigError
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.base import (
    DeepEvalBaseEvaluator,
    DeepEvalOptions,
    require_count,
    require_range,
)
from holodeck.lib.evaluators.deepeval.conversations import ConversationEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.judging.judge import JsonObject
from holodeck.models.metrics.deepeval import RubricBand


class Criteria:
    """What makes a response good: in words, or as the steps to judge by. Raises ConfigError."""

    def __init__(
        self,
        criteria: str | None,
        evaluation_steps: Sequence[str] | None,
        rubric: Sequence[RubricBand] | None,
    ) -> None:
        if not (criteria or "").strip() and not evaluation_steps:
            raise ConfigError("criteria", "is missing; describe what makes a response good")
        self._criteria = criteria
        self._steps = evaluation_steps
        self._rubric = sorted(rubric or [], key=lambda band: band.score)

    @property
    def scale(self) -> tuple[int, int]:
        """The first and last score of the rubric; 0 to 10 without one."""
        return (self._rubric[0].score[0], self._rubric[-1].score[1]) if self._rubric else (0, 10)

    def options(self) -> dict[str, Any]:
        """Return the arguments of DeepEval's class."""
        make = adapter.library().rubric
        bands = [
            make(score_range=tuple(band.score), expected_outcome=band.expected_outcome)
            for band in self._rubric
        ]
        return {
            "criteria": self._criteria,
            "evaluation_steps": list(self._steps) if self._steps else None,
            "rubric": bands or None,
        }


class GEvalEvaluator(DeepEvalBaseEvaluator):
    """G-Eval: the judge follows steps and gives a score of 0 to 10, which becomes 0 to 1.

    If the judge's endpoint returns token probabilities, the score is the mean of the scores that
    the judge might have given, weighted by their probabilities. Otherwise a note says so.

    Args:
        name: The metric's name in reports.
        criteria: What makes a response good; without steps, the judge first derives them.
        evaluation_steps: The steps to judge by.
        evaluation_params: The parts of the case that the judge sees.
        strict_mode: Whether the judge scores only 0 or 1.
        rubric: Bands of scores and what they mean; the first score becomes 0, the last 1.
    """

    metric = "geval"
    deepeval_class = "GEval"
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset({EvalParam.ACTUAL_OUTPUT}),
        optional=frozenset(
            {
                EvalParam.INPUT,
                EvalParam.EXPECTED_OUTPUT,
                EvalParam.CONTEXT,
                EvalParam.RETRIEVAL_CONTEXT,
            }
        ),
    )

    def __init__(
        self,
        name: str,
        criteria: str | None = None,
        evaluation_params: Sequence[str] = ("actual_output",),
        evaluation_steps: Sequence[str] | None = None,
        *,
        strict_mode: bool = False,
        rubric: Sequence[RubricBand] | None = None,
        **options: Unpack[DeepEvalOptions],
    ) -> None:
        super().__init__(strict_mode=strict_mode, **options)
        self._name = name
        self._criteria = Criteria(criteria, evaluation_steps, rubric)
        self._params = tuple(EvalParam(param) for param in evaluation_params)
        if not self._params:
            raise ConfigError("evaluation_params", "is empty: name the inputs that the judge sees")
        self._scale = (0, 1) if strict_mode else self._criteria.scale

    @property
    def name(self) -> str:
        return self._name

    def required_params(self) -> frozenset[EvalParam]:
        return self.PARAM_SPEC.required | frozenset(self._params)

    def _options(self) -> dict[str, Any]:
        kinds = adapter.library().cases.SingleTurnParams
        return {
            "name": self._name,
            "evaluation_params": [kinds(param.value) for param in self._params],
            **self._criteria.options(),
            "threshold": self.threshold,
            "strict_mode": self.strict_mode,
        }

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:  # noqa: ARG002
        check_score(answer, self._scale, is_whole=self.strict_mode)

    def _weighted_scale(self) -> tuple[int, int] | None:
        return None if self.strict_mode else self._scale

    def _result(self, metric: Any, case: Any) -> dict[str, Any]:
        low, high = self._scale
        result = super()._result(metric, case)
        raw = round(low + result["score"] * (high - low), 6)
        return {**result, "raw_score": raw, "raw_scale": f"{low}-{high}"}


class ConversationalGEvalEvaluator(ConversationEvaluator):
    """G-Eval for a conversation; the score of 0 to 10 becomes 0 to 1.

    Args:
        criteria: What makes a conversation good; without steps, the judge first derives them.
        evaluation_steps: The steps to judge by.
        strict_mode: Whether only a perfect score passes.
        rubric: Bands of scores and what they mean.
    """

    metric = "conversational_geval"
    deepeval_class = "ConversationalGEval"

    def __init__(
        self,
        *,
        criteria: str | None = None,
        evaluation_steps: Sequence[str] | None = None,
        rubric: Sequence[RubricBand] | None = None,
        strict_mode: bool = False,
        **options: Unpack[DeepEvalOptions],
    ) -> None:
        super().__init__(strict_mode=strict_mode, **options)
        self._criteria = Criteria(criteria, evaluation_steps, rubric)

    def _options(self) -> dict[str, Any]:
        kinds = adapter.library().cases.MultiTurnParams
        return {
            "name": self.name,
            "evaluation_params": [kinds.CONTENT, kinds.ROLE],
            **self._criteria.options(),
            "threshold": self.threshold,
            "strict_mode": self.strict_mode,
        }

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:  # noqa: ARG002
        check_score(answer, (0, 10))

    def _weighted_scale(self) -> tuple[int, int] | None:
        return None if self.strict_mode else (0, 10)


def check_score(answer: JsonObject, scale: tuple[int, int], *, is_whole: bool = False) -> None:
    """Raise ValueError for a score outside the scale, or an empty list of steps."""
    if "steps" in answer:
        require_count("steps", answer["steps"], None)
    if "score" in answer:
        require_range("score", answer["score"], *scale)
        if is_whole and answer["score"] not in scale:
            raise ValueError(
                f"'score' is {answer['score']:g}; it is to be {scale[0]} or {scale[1]}"
            )
