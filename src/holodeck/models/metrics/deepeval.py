"""Metrics of DeepEval."""

from enum import StrEnum
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from holodeck.models.base import Model, NonBlank
from holodeck.models.metrics.base import ClassMetric, JudgedMetric


class RAGMetricType(StrEnum):
    """The metrics of `type: rag`."""

    FAITHFULNESS = "faithfulness"
    CONTEXTUAL_RELEVANCY = "contextual_relevancy"
    CONTEXTUAL_PRECISION = "contextual_precision"
    CONTEXTUAL_RECALL = "contextual_recall"
    ANSWER_RELEVANCY = "answer_relevancy"


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


class DeepEvalSettings(JudgedMetric):
    """The settings that the metrics of DeepEval share."""

    family: ClassVar = "deepeval"

    strict_mode: bool = False
    """Whether only a perfect score passes; G-Eval's judge of a response scores only 0 or 1."""


class CriteriaMetric(DeepEvalSettings):
    """Criteria in your own words, judged step by step."""

    criteria: NonBlank | None = None
    """What makes a response or a conversation good. The judge derives the steps from it, with one
    extra call."""
    evaluation_steps: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """The steps themselves, instead of letting the judge derive them."""
    rubric: Rubric | None = None
    """Score bands and their meaning; the first score becomes 0 and the last 1."""

    @model_validator(mode="after")
    def _check_criteria(self) -> "CriteriaMetric":
        if self.criteria is None and self.evaluation_steps is None:
            raise ValueError("'criteria' is missing; describe what is good")
        return self


class GEvalMetric(CriteriaMetric):
    """G-Eval: criteria in your own words, judged step by step."""

    type: Literal["geval"] = "geval"
    """Your own criteria."""
    name: NonBlank
    """The metric's name in reports."""
    evaluation_params: Annotated[
        list[Literal["input", "actual_output", "expected_output", "context", "retrieval_context"]],
        Field(min_length=1),
    ] = ["actual_output"]
    """The parts of the case that the judge sees."""


class ReasonedMetric(DeepEvalSettings):
    """A metric of DeepEval whose judge may give a reason."""

    include_reason: bool = True
    """Whether the judge gives a reason, with one extra call."""


class RAGMetric(ReasonedMetric):
    """A metric of DeepEval about retrieved passages."""

    other_names: ClassVar = {"metric": "metric_type"}

    type: Literal["rag"] = "rag"
    """Metrics about retrieved passages."""
    metric_type: RAGMetricType
    """The metric."""

    @property
    def evaluator_name(self) -> str:
        return self.metric_type.value

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(RAGMetricType)


class NamedMetric(ReasonedMetric):
    """A metric of DeepEval that its name selects."""

    other_names: ClassVar = {"metric_type": "metric"}

    type: Literal["deepeval"] = "deepeval"
    """A metric of DeepEval."""
    metric: NonBlank


class DeepEvalMetric(NamedMetric):
    """A further metric of DeepEval. A score of 1 is always good."""

    metric: Literal[
        "hallucination",
        "bias",
        "toxicity",
        "pii_leakage",
        "task_completion",
        "tool_correctness",
        "argument_correctness",
        "conversation_completeness",
        "knowledge_retention",
        "turn_relevancy",
        "plan_adherence",
        "plan_quality",
        "step_efficiency",
        "goal_accuracy",
        "tool_use",
        "turn_faithfulness",
        "turn_contextual_relevancy",
        "turn_contextual_precision",
        "turn_contextual_recall",
    ]


class PromptAlignmentMetric(NamedMetric):
    """The response follows instructions."""

    metric: Literal["prompt_alignment"]
    prompt_instructions: Annotated[list[NonBlank], Field(min_length=1)]
    """The instructions that the response must follow."""


class SummarizationMetric(NamedMetric):
    """The response summarizes the input."""

    metric: Literal["summarization"]
    assessment_questions: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """Questions that a good summary answers with yes; by default, the judge writes five."""


class RoleAdherenceMetric(NamedMetric):
    """The agent stays in its role."""

    metric: Literal["role_adherence"]
    chatbot_role: NonBlank
    """The agent's role."""


class TopicAdherenceMetric(NamedMetric):
    """The agent answers questions about its topics, and no others."""

    metric: Literal["topic_adherence"]
    relevant_topics: Annotated[list[NonBlank], Field(min_length=1)]
    """The topics that the agent is to talk about."""


class ConversationalGEvalMetric(CriteriaMetric):
    """G-Eval for a conversation."""

    other_names: ClassVar = {"metric_type": "metric"}

    type: Literal["deepeval"] = "deepeval"
    """A metric of DeepEval."""
    metric: Literal["conversational_geval"]


class DeepEvalClassMetric(ClassMetric):
    """Any metric class of DeepEval, or your own that derives from `BaseMetric` or
    `BaseConversationalMetric`. A score of 1 is always good."""

    family: ClassVar = "deepeval"

    type: Literal["deepeval"] = "deepeval"
    """A metric of DeepEval."""
