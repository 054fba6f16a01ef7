"""Metrics that DeepEval computes with the help of a judge."""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from holodeck.models.base import Json, Model, NonBlank
from holodeck.models.metric import JudgedMetric, MetricKind


class RAGMetricType(StrEnum):
    """Metrics about retrieved passages."""

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
]
DEEPEVAL_METRICS: tuple[str, ...] = get_args(DeepEvalName)


class RubricBand(Model):
    """What an answer within a band of scores is like."""

    score: Annotated[list[Annotated[int, Field(ge=0, le=10)]], Field(min_length=2, max_length=2)]
    """First and last score of the band, of 0 to 10."""
    expected_outcome: NonBlank
    """What such an answer is like."""


class GEvalMetric(JudgedMetric):
    """G-Eval: your criteria in words, judged step by step."""

    type: Literal["geval"]
    """Criteria in your own words."""
    name: NonBlank
    """What reports call it."""
    criteria: NonBlank | None = None
    """What makes an answer good; the judge makes steps of it, which costs one call more."""
    evaluation_steps: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """The steps themselves, instead of letting the judge make them."""
    evaluation_params: Annotated[
        list[Literal["input", "actual_output", "expected_output", "context", "retrieval_context"]],
        Field(min_length=1),
    ] = ["actual_output"]
    """What of the case the judge sees."""
    strict_mode: bool = False
    """Whether the judge says only 0 or 1."""
    rubric: Annotated[list[RubricBand], Field(min_length=1)] | None = None
    """Bands of scores and what they mean."""

    @property
    def kind(self) -> MetricKind:
        """What its rows in reports say about where it comes from."""
        return "geval"

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return "geval"

    @property
    def label(self) -> str:
        """The name under which its rows appear in reports."""
        return self.name

    @model_validator(mode="after")
    def _says_what_is_good(self) -> "GEvalMetric":
        if self.criteria is None and self.evaluation_steps is None:
            raise ValueError("'criteria' is missing: say what makes an answer good")
        return self


class RAGMetric(JudgedMetric):
    """A metric about retrieved passages."""

    type: Literal["rag"]
    """About what was retrieved."""
    metric_type: RAGMetricType
    """Which one."""
    include_reason: bool = True
    """Whether the judge says why, which costs one call more."""
    strict_mode: bool = False
    """Whether only a perfect score counts."""

    not_options: ClassVar[frozenset[str]] = JudgedMetric.not_options | {"metric_type"}

    @property
    def kind(self) -> MetricKind:
        """What its rows in reports say about where it comes from."""
        return "rag"

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return self.metric_type.value


class DeepEvalMetric(JudgedMetric):
    """A further metric of DeepEval. All scores say: 1 is good."""

    type: Literal["deepeval"]
    """A further metric of DeepEval."""
    metric: DeepEvalName
    """Which one."""
    include_reason: bool = True
    """Whether the judge says why, which costs one call more."""
    strict_mode: bool = False
    """Whether only a perfect score counts."""
    prompt_instructions: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """What the answer is to keep to, one by one; for `prompt_alignment`."""
    assessment_questions: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """Questions that a good summary answers; for `summarization`."""
    schema_: dict[str, Json] | None = Field(default=None, alias="schema")
    """The JSON schema; for `json_correctness`."""

    @property
    def kind(self) -> MetricKind:
        """What its rows in reports say about where it comes from."""
        return "deepeval"

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return self.metric
