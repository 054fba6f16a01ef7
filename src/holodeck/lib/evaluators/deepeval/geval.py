"""DeepEval's G-Eval: criteria in your own words, for a response or a conversation."""

from collections.abc import Sequence
from typing import Any

from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.base import (
    DeepEvalBaseEvaluator,
    require_count,
    require_range,
)
from holodeck.lib.evaluators.deepeval.conversations import ConversationEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.judging.judge import JsonObject
from holodeck.models.metrics.deepeval import (
    ConversationalGEvalMetric,
    CriteriaMetric,
    GEvalMetric,
)


def _scale_of(settings: CriteriaMetric) -> tuple[int, int]:
    """Return the first and last score of the rubric; 0 to 10 without one."""
    bands = sorted(band.score for band in settings.rubric or ())
    return (bands[0][0], bands[-1][1]) if bands else (0, 10)


def _criteria_options(settings: CriteriaMetric) -> dict[str, Any]:
    """Return the arguments of DeepEval's classes besides the judge."""
    bands = [
        adapter.library().rubric(
            score_range=tuple(band.score), expected_outcome=band.expected_outcome
        )
        for band in sorted(settings.rubric or (), key=lambda band: band.score)
    ]
    return {
        "criteria": settings.criteria,
        "evaluation_steps": settings.evaluation_steps,
        "rubric": bands or None,
        "threshold": settings.threshold,
        "strict_mode": settings.strict_mode,
    }


class GEvalEvaluator(DeepEvalBaseEvaluator):
    """G-Eval: the judge follows steps and gives a score of 0 to 10, which becomes 0 to 1.

    If the judge's endpoint returns token probabilities, the score is the mean of the scores that
    the judge might have given, weighted by their probabilities. Otherwise a note says so.

    Args:
        name: The metric's name in reports.
        criteria: What makes a response good; without steps, the judge first derives them.
        evaluation_steps: The steps to judge by.
        evaluation_params: The parts of the case that the judge sees; the response by default.
        options: `strict_mode`, whether the judge scores only 0 or 1; `rubric`, bands of scores and
            what they mean, the first score becomes 0, the last 1; and as for `JudgedEvaluator`.
    """

    settings: GEvalMetric
    metric = "geval"
    deepeval_class = "GEval"
    PARAM_SPEC = ParamSpec(
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
        name: str | None = None,
        criteria: str | None = None,
        evaluation_params: Sequence[str] | None = None,
        evaluation_steps: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            name=name,
            criteria=criteria,
            evaluation_params=evaluation_params,
            evaluation_steps=evaluation_steps,
            **options,
        )

    def _configure(self) -> None:
        super()._configure()
        self._scale = (0, 1) if self.strict_mode else _scale_of(self.settings)

    @property
    def name(self) -> str:
        return self.settings.name

    def required_params(self) -> frozenset[EvalParam]:
        return self.PARAM_SPEC.required | set(map(EvalParam, self.settings.evaluation_params))

    def _options(self) -> dict[str, Any]:
        kinds = adapter.library().cases.SingleTurnParams
        return {
            "name": self.name,
            "evaluation_params": [kinds(param) for param in self.settings.evaluation_params],
            **_criteria_options(self.settings),
        }

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:  # noqa: ARG002
        check_score(answer, self._scale, is_whole=self.strict_mode)

    def _weighted_scale(self) -> tuple[int, int] | None:
        return None if self.strict_mode else self._scale

    def _result_of(self, metric: Any, case: Any) -> dict[str, Any]:
        low, high = self._scale
        result = super()._result_of(metric, case)
        raw = round(low + result["score"] * (high - low), 6)
        return {**result, "raw_score": raw, "raw_scale": f"{low}-{high}"}


class ConversationalGEvalEvaluator(ConversationEvaluator):
    """G-Eval for a conversation; the score of 0 to 10 becomes 0 to 1."""

    settings: ConversationalGEvalMetric
    metric = "conversational_geval"
    deepeval_class = "ConversationalGEval"

    def _options(self) -> dict[str, Any]:
        kinds = adapter.library().cases.MultiTurnParams
        return {
            "name": self.name,
            "evaluation_params": [kinds.CONTENT, kinds.ROLE],
            **_criteria_options(self.settings),
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
