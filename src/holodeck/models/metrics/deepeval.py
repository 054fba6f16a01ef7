"""Metrics of DeepEval."""

from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from holodeck.models.base import Json, Model, NonBlank
from holodeck.models.metrics.base import ClassMetric, JudgedMetric


class RAGMetricType(StrEnum):
    """The metrics of `type: rag`."""

    FAITHFULNESS = "faithfulness"
    CONTEXTUAL_RELEVANCY = "contextual_relevancy"
    CONTEXTUAL_PRECISION = "contextual_precision"
    CONTEXTUAL_RECALL = "contextual_recall"
    ANSWER_RELEVANCY = "answer_relevancy"


DeepEvalName = Literal[
    "hallucination",
    "bias",
    "toxicity",
    "pii_leakage",
    "summarization",
    "prompt_alignment",
    "task_completion",
    "tool_correctness",
    "argument_correctness",
    "json_correctness",
    "conversation_completeness",
    "knowledge_retention",
    "role_adherence",
    "turn_relevancy",
    "conversational_geval",
    "plan_adherence",
    "plan_quality",
    "step_efficiency",
    "goal_accuracy",
    "tool_use",
    "topic_adherence",
    "turn_faithfulness",
    "turn_contextual_relevancy",
    "turn_contextual_precision",
    "turn_contextual_recall",
    "mcp_use",
    "multi_turn_mcp_use",
    "mcp_task_completion",
]

_REQUIRED_KEY = {
    "prompt_alignment": "prompt_instructions",
    "json_correctness": "schema",
    "role_adherence": "chatbot_role",
    "topic_adherence": "relevant_topics",
}
_OWN_KEYS = {
    **{metric: frozenset({key}) for metric, key in _REQUIRED_KEY.items()},
    "summarization": frozenset({"assessment_questions"}),
    "conversational_geval": frozenset({"criteria", "evaluation_steps", "rubric"}),
}
"""The keys that only one metric has."""
_ALL_OWN_KEYS = frozenset().union(*_OWN_KEYS.values())
_WITHOUT_REASON_OPTION = frozenset({"conversational_geval"})
"""Metrics whose reason always comes with the score."""


class RubricBand(Model):
    """A range of scores and its meaning."""

    other_names: ClassVar = {"score_range": "score"}

    score: Annotated[list[Annotated[int, Field(ge=0, le=10)]], Field(min_length=2, max_length=2)]
    """First and last score of the band, between 0 and 10."""
    expected_outcome: NonBlank
    """What a response in this band is like."""

    @model_validator(mode="after")
    def _check_ascending(self) -> "RubricBand":
        first, last = self.score
        if first > last:
            raise ValueError(f"'score' goes down; write [{last}, {first}]")
        return self


def _check_bands(bands: list[RubricBand]) -> list[RubricBand]:
    ordered = sorted(band.score for band in bands)
    for (_, last), (first, _) in pairwise(ordered):
        if first <= last:
            raise ValueError(f"the score {first} is in two bands")
    if ordered[0][0] == ordered[-1][1]:
        raise ValueError("all bands together hold one score only")
    return bands


Rubric = Annotated[list[RubricBand], Field(min_length=1), AfterValidator(_check_bands)]


class GEvalMetric(JudgedMetric):
    """G-Eval: criteria in your own words, judged step by step."""

    type: Literal["geval"] = "geval"
    """Your own criteria."""
    name: NonBlank
    """The metric's name in reports."""
    criteria: NonBlank | None = None
    """What makes a response good. The judge derives the steps from it, with one extra call."""
    evaluation_steps: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """The steps themselves, instead of letting the judge derive them."""
    evaluation_params: Annotated[
        list[Literal["input", "actual_output", "expected_output", "context", "retrieval_context"]],
        Field(min_length=1),
    ] = ["actual_output"]
    """The parts of the case that the judge sees."""
    strict_mode: bool = False
    """Whether the judge scores only 0 or 1."""
    rubric: Rubric | None = None
    """Score bands and their meaning; the first score becomes 0 and the last 1."""

    def options(self) -> dict[str, Any]:
        """Return the settings, with the name, which the judge reads, too."""
        return {**super().options(), "name": self.name}

    @model_validator(mode="after")
    def _check_criteria(self) -> "GEvalMetric":
        if self.criteria is None and self.evaluation_steps is None:
            raise ValueError("'criteria' is missing; describe what makes a response good")
        return self


class RAGMetric(JudgedMetric):
    """A metric of DeepEval about retrieved passages."""

    other_names: ClassVar = {"metric": "metric_type"}
    not_options: ClassVar[frozenset[str]] = JudgedMetric.not_options | {"metric_type"}

    type: Literal["rag"] = "rag"
    """Metrics about retrieved passages."""
    metric_type: RAGMetricType
    """The metric."""
    include_reason: bool = True
    """Whether the judge gives a reason, with one extra call."""
    strict_mode: bool = False
    """Whether only a perfect score passes."""

    @property
    def evaluator_name(self) -> str:
        return self.metric_type.value

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(RAGMetricType)


class DeepEvalMetric(JudgedMetric):
    """A further metric of DeepEval. A score of 1 is always good."""

    other_names: ClassVar = {"metric_type": "metric", "expected_schema": "schema"}

    type: Literal["deepeval"] = "deepeval"
    """A metric of DeepEval."""
    metric: DeepEvalName
    """The metric."""
    include_reason: bool = True
    """Whether the judge gives a reason, with one extra call."""
    strict_mode: bool = False
    """Whether only a perfect score passes."""
    prompt_instructions: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """The instructions that the response must follow; for `prompt_alignment`."""
    assessment_questions: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """Questions that a good summary answers; for `summarization`."""
    schema_: dict[str, Json] | None = Field(default=None, alias="schema")
    """The JSON schema; for `json_correctness`."""
    chatbot_role: NonBlank | None = None
    """The agent's role; for `role_adherence`."""
    relevant_topics: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """The topics that the agent is to talk about; for `topic_adherence`."""
    criteria: NonBlank | None = None
    """What makes a conversation good; for `conversational_geval`."""
    evaluation_steps: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """Evaluation steps, instead of `criteria`; for `conversational_geval`."""
    rubric: Rubric | None = None
    """Score bands and their meaning; for `conversational_geval`."""

    @model_validator(mode="after")
    def _check_own_keys(self) -> "DeepEvalMetric":
        present = {name for name, value in super().options().items() if value is not None}
        required = _REQUIRED_KEY.get(self.metric)
        if required is not None and required not in present:
            raise ValueError(f"'{required}' is missing, which {self.metric} requires")
        if self.metric == "conversational_geval" and not present & {"criteria", "evaluation_steps"}:
            raise ValueError("'criteria' is missing; describe what makes a conversation good")
        for key in sorted(present & self._keys_of_others):
            raise ValueError(f"'{key}' is not a key of {self.metric}; remove it")
        return self

    @property
    def _keys_of_others(self) -> frozenset[str]:
        return _ALL_OWN_KEYS - _OWN_KEYS.get(self.metric, frozenset())

    def options(self) -> dict[str, Any]:
        """Return the settings that this metric uses by their keys in agent.yaml."""
        unused = self._keys_of_others
        if self.metric in _WITHOUT_REASON_OPTION:
            unused |= {"include_reason"}
        return {name: value for name, value in super().options().items() if name not in unused}

    @property
    def evaluator_name(self) -> str:
        return self.metric


class DeepEvalClassMetric(ClassMetric):
    """Any metric class of DeepEval, or your own that derives from `BaseMetric` or
    `BaseConversationalMetric`. A score of 1 is always good."""

    type: Literal["deepeval"] = "deepeval"
    """A metric of DeepEval."""
