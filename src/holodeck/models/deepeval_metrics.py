"""Metrics that DeepEval computes with the help of a judge."""

from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

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
    "conversation_completeness",
    "knowledge_retention",
    "role_adherence",
    "turn_relevancy",
    "conversational_geval",
]
DEEPEVAL_METRICS: tuple[str, ...] = get_args(DeepEvalName)

_NEEDED = {
    "prompt_alignment": "prompt_instructions",
    "json_correctness": "schema",
    "role_adherence": "chatbot_role",
}
"""The key without which a metric says nothing."""
_OWN = {
    **{metric: frozenset({key}) for metric, key in _NEEDED.items()},
    "summarization": frozenset({"assessment_questions"}),
    "conversational_geval": frozenset({"criteria", "evaluation_steps", "rubric"}),
}
"""The keys that only one metric has."""
_SOMEONES = frozenset().union(*_OWN.values())
_NO_REASON = frozenset({"conversational_geval"})
"""Metrics whose reason comes with the score."""


class RubricBand(Model):
    """What an answer within a band of scores is like."""

    score: Annotated[list[Annotated[int, Field(ge=0, le=10)]], Field(min_length=2, max_length=2)]
    """First and last score of the band, of 0 to 10."""
    expected_outcome: NonBlank
    """What such an answer is like."""

    @model_validator(mode="after")
    def _goes_up(self) -> "RubricBand":
        first, last = self.score
        if first > last:
            raise ValueError(f"'score' goes down; write [{last}, {first}]")
        return self


def _bands_apart(bands: list[RubricBand]) -> list[RubricBand]:
    ordered = sorted(band.score for band in bands)
    for (_, last), (first, _) in pairwise(ordered):
        if first <= last:
            raise ValueError(f"the score {first} is in two bands")
    if ordered[0][0] == ordered[-1][1]:
        raise ValueError("all bands together hold one score only")
    return bands


Rubric = Annotated[list[RubricBand], Field(min_length=1), AfterValidator(_bands_apart)]


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
    rubric: Rubric | None = None
    """Bands of scores and what they mean; the first score becomes 0 and the last 1."""

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
    chatbot_role: NonBlank | None = None
    """What the agent is to be; for `role_adherence`."""
    criteria: NonBlank | None = None
    """What makes a conversation good; for `conversational_geval`."""
    evaluation_steps: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """The steps to judge by, instead of `criteria`; for `conversational_geval`."""
    rubric: Rubric | None = None
    """Bands of scores and what they mean; for `conversational_geval`."""

    @model_validator(mode="after")
    def _has_the_right_keys(self) -> "DeepEvalMetric":
        given = {name for name, value in super().options().items() if value is not None}
        needed = _NEEDED.get(self.metric)
        if needed is not None and needed not in given:
            raise ValueError(f"'{needed}' is missing, without which {self.metric} says nothing")
        if self.metric == "conversational_geval" and not given & {"criteria", "evaluation_steps"}:
            raise ValueError("'criteria' is missing: say what makes a conversation good")
        for key in sorted(given & (_SOMEONES - _OWN.get(self.metric, frozenset()))):
            raise ValueError(f"'{key}' is not a key of {self.metric}; remove it")
        return self

    def options(self) -> dict[str, Any]:
        """What the keys of this very metric say."""
        without = _SOMEONES - _OWN.get(self.metric, frozenset())
        if self.metric in _NO_REASON:
            without |= {"include_reason"}
        return {name: value for name, value in super().options().items() if name not in without}

    @property
    def kind(self) -> MetricKind:
        """What its rows in reports say about where it comes from."""
        return "deepeval"

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return self.metric
