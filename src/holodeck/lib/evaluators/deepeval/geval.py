"""Metrics of DeepEval with criteria in your own words (G-Eval), and about conversations."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import Score
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.base import (
    DeepEvalBaseEvaluator,
    require_count,
    require_range,
    to_turn,
)
from holodeck.lib.evaluators.inputs import Turn
from holodeck.lib.evaluators.param_spec import EvalParam, takes
from holodeck.lib.judging.judge import JsonObject
from holodeck.models.metrics.deepeval import (
    ConversationalGEvalMetric,
    CriteriaMetric,
    GEvalMetric,
    RoleAdherenceMetric,
)


class ConversationEvaluator(DeepEvalBaseEvaluator):
    """Scores a conversation, given as `turns`: each a Turn, or a mapping with its keys."""

    PARAM_SPEC = takes("turns")

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        messages = kwargs[EvalParam.TURNS]
        turns = [turn if isinstance(turn, Turn) else Turn(**turn) for turn in messages]
        roles = [turn.role for turn in turns]
        if "user" not in roles or "assistant" not in roles[roles.index("user") :]:
            raise EvaluationError(f"{self.metric} needs a user message that the agent answers")
        return adapter.library().cases.ConversationalTestCase(
            turns=[to_turn(turn) for turn in turns], chatbot_role=self._role()
        )

    def _role(self) -> str | None:
        return None


class ConversationCompletenessEvaluator(ConversationEvaluator, metric="conversation_completeness"):
    """The share of the user's requests that the conversation fulfills."""

    counted = "intentions"
    without_items = "the judge found no request of the user"


class KnowledgeRetentionEvaluator(ConversationEvaluator, metric="knowledge_retention"):
    """The share of the agent's turns that forget nothing the user said."""

    without_items = "the judge found nothing to remember"

    def _item_count(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(metric.verdicts)


class TurnRelevancyEvaluator(ConversationEvaluator, metric="turn_relevancy"):
    """The share of the agent's turns that are relevant to the conversation before."""


class RoleAdherenceEvaluator(ConversationEvaluator, metric="role_adherence"):
    """The share of the agent's turns that stay in its role."""

    settings: RoleAdherenceMetric

    def _role(self) -> str | None:
        return adapter.clean_text(self.settings.chatbot_role)

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:  # noqa: ARG002
        """Check that the judge lists only turns of the agent: those that leave its role, if any."""
        if "verdicts" not in answer:
            return
        named = [verdict["index"] for verdict in answer["verdicts"]]
        agents = [index for index, turn in enumerate(case.turns) if turn.role == "assistant"]
        for index in named:
            if index not in agents:
                raise ValueError(f"'index' is {index}; the assistant's messages are {agents}")
        if len(set(named)) < len(named):
            raise ValueError("'verdicts' names a message twice")


def _scale_of(settings: CriteriaMetric) -> tuple[int, int]:
    """Return the first and last score of the rubric; 0 to 10 without a rubric."""
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


class GEvalEvaluator(DeepEvalBaseEvaluator, metric="geval"):
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
    library_class = "GEval"
    PARAM_SPEC = takes(
        "actual_output", optional=("input", "expected_output", "context", "retrieval_context")
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

    def _score_of(self, metric: Any, case: Any) -> Score:
        low, high = self._scale
        score = super()._score_of(metric, case)
        raw = round(low + score.score * (high - low), 6)
        return replace(score, raw_score=raw, raw_scale=f"{low}-{high}")


class ConversationalGEvalEvaluator(ConversationEvaluator, metric="conversational_geval"):
    """G-Eval for a conversation; the score of 0 to 10 becomes 0 to 1."""

    settings: ConversationalGEvalMetric
    library_class = "ConversationalGEval"

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
