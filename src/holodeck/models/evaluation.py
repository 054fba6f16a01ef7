"""Metrics: one model per metric, so that an option of another metric is an unknown key."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from holodeck.models.base import Json, Milliseconds, Model, NonBlank, Ratio
from holodeck.models.llm import LLMProvider

JUDGE_METRICS = (
    "groundedness",
    "relevance",
    "coherence",
    "fluency",
    "similarity",
    "retrieval",
    "response_completeness",
    "intent_resolution",
    "task_adherence",
    "tool_call_accuracy",
    "safety",
)
JUDGE_TYPES = ("geval", "rag", "deepeval", "azure", "judge", "code")


class RAGMetricType(StrEnum):
    """Metrics about retrieved passages."""

    FAITHFULNESS = "faithfulness"
    CONTEXTUAL_RELEVANCY = "contextual_relevancy"
    CONTEXTUAL_PRECISION = "contextual_precision"
    CONTEXTUAL_RECALL = "contextual_recall"
    ANSWER_RELEVANCY = "answer_relevancy"


class EvaluationMetric(Model):
    """What every metric has."""

    not_yet: ClassVar = {
        "model": "judges",
        "custom_prompt": "judges",
        "scale": "judges",
    }

    type: Literal["standard"] = "standard"
    """May be left out."""
    metric: NonBlank
    """Which metric: one of the names below, or `module:callable`."""
    threshold: Ratio | None = None
    """Score to reach, 0 to 1; without one the metric's own verdict counts, if it has one."""
    enabled: bool = True
    """Whether the metric is computed at all."""
    fail_on_error: bool = False
    """A metric that cannot be computed leaves the case undecided (exit 4); true makes it a failure
    (exit 1) and computes no further metric of the case. It never passes."""
    retry_on_failure: Annotated[int, Field(ge=1, le=3)] | None = None
    """How often a metric that could not be computed is tried again."""
    timeout_ms: Milliseconds | None = None
    """Time limit of the metric in milliseconds; 60000 if not given."""


class ComparingMetric(EvaluationMetric):
    """Compares the answer with `value` or `values`, else with the case's `ground_truth`."""

    value: NonBlank | None = None
    """What to compare with."""
    values: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """Several right texts, of which the best counts unless the metric says otherwise."""

    @model_validator(mode="after")
    def _says_one_thing(self) -> "ComparingMetric":
        if self.value is not None and self.values is not None:
            raise ValueError("write either 'value' or 'values', not both")
        return self

    def wanted(self) -> list[str] | None:
        """What to compare with; None means the case's ground truth."""
        return self.values if self.value is None else [self.value]


class TextMetric(ComparingMetric):
    """Compares text literally, after the normalisations asked for."""

    ignore_case: bool = False
    """Whether A and a are the same."""
    ignore_punctuation: bool = False
    """Whether punctuation is left out on both sides."""
    normalize_whitespace: bool = False
    """Runs of white space count as one space."""


class F1ScoreMetric(ComparingMetric):
    """Token overlap, as in SQuAD."""

    metric: Literal["f1_score"]


class BLEUMetric(ComparingMetric):
    """Sentence BLEU by sacrebleu with exponential smoothing."""

    metric: Literal["bleu"]


class ROUGEMetric(ComparingMetric):
    """ROUGE F-measure."""

    metric: Literal["rouge"]
    variant: Literal["rouge1", "rouge2", "rougeL"] = "rougeL"
    """The variant whose F-measure is the score."""


class METEORMetric(ComparingMetric):
    """METEOR with exact and stem matches (no synonyms, so nothing is downloaded)."""

    metric: Literal["meteor"]


class ExactMatchMetric(TextMetric):
    """The answer is the text."""

    metric: Literal["exact_match", "equality"]
    strip: bool = True
    """White space around the answer does not count."""


class ContainsMetric(TextMetric):
    """The answer contains the text."""

    metric: Literal["contains"]
    match: Literal["all", "any"] = "all"
    """Whether all `values` must be there or any one."""


class NotContainsMetric(TextMetric):
    """The answer contains none of the texts."""

    metric: Literal["not_contains"]


class RegexMetric(EvaluationMetric):
    """A regular expression finds a match in the answer."""

    metric: Literal["regex"]
    pattern: NonBlank
    """The regular expression."""
    fullmatch: bool = False
    """Whether the whole answer must match."""
    ignore_case: bool = False
    """Whether A and a are the same."""
    time_limit_ms: Milliseconds = 1000
    """A pattern that takes longer makes an error row, not a hang."""


class JsonSchemaMetric(EvaluationMetric):
    """The answer is JSON that a schema accepts."""

    metric: Literal["json_schema"]
    schema_: dict[str, Json] = Field(alias="schema")
    """The JSON schema."""
    allow_fenced: bool = False
    """Whether JSON inside a Markdown fence is accepted."""


class NumericMetric(ComparingMetric):
    """The answer holds the right number."""

    metric: Literal["numeric"]
    value: float | NonBlank | None = None  # type: ignore[assignment]
    """The number to compare with."""
    values: Annotated[list[float | NonBlank], Field(min_length=1)] | None = None  # type: ignore[assignment]
    """Several right numbers."""
    absolute_tolerance: Annotated[float, Field(ge=0)] = 1e-6
    """How far off the answer may be."""
    relative_tolerance: Annotated[float, Field(ge=0)] = 0.0
    """How far off the answer may be, as a share of the number."""
    accept_percent: bool = False
    """Whether 45 % counts as 0.45."""
    accept_thousands_separators: bool = False
    """Whether 1,234 counts as 1234."""
    pick: Literal["only", "first", "last", "any"] = "only"
    """Which of several numbers in the answer counts; `only` asks for exactly one."""


class LatencyMetric(EvaluationMetric):
    """The agent answered in time."""

    metric: Literal["latency"]
    max_ms: Milliseconds
    """Most milliseconds that the agent may take."""


class CustomMetric(EvaluationMetric):
    """A Python callable of the user, `module:callable`, looked up beside the agent.yaml."""

    metric: Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+$")]
    name: NonBlank | None = None
    """What reports call it; else the callable's own name."""


BUILT_IN: dict[str, type[EvaluationMetric]] = {
    "f1_score": F1ScoreMetric,
    "bleu": BLEUMetric,
    "rouge": ROUGEMetric,
    "meteor": METEORMetric,
    "exact_match": ExactMatchMetric,
    "equality": ExactMatchMetric,
    "contains": ContainsMetric,
    "not_contains": NotContainsMetric,
    "regex": RegexMetric,
    "json_schema": JsonSchemaMetric,
    "numeric": NumericMetric,
    "latency": LatencyMetric,
}


def _tag(data: Any) -> str | None:
    """Which model a metric's mapping belongs to."""
    name = data.get("metric") if isinstance(data, dict) else getattr(data, "metric", None)
    if not isinstance(name, str):
        return None
    if ":" in name:
        return "custom"
    return {"equality": "exact_match"}.get(name, name)


Metric = Annotated[
    Annotated[F1ScoreMetric, Tag("f1_score")]
    | Annotated[BLEUMetric, Tag("bleu")]
    | Annotated[ROUGEMetric, Tag("rouge")]
    | Annotated[METEORMetric, Tag("meteor")]
    | Annotated[ExactMatchMetric, Tag("exact_match")]
    | Annotated[ContainsMetric, Tag("contains")]
    | Annotated[NotContainsMetric, Tag("not_contains")]
    | Annotated[RegexMetric, Tag("regex")]
    | Annotated[JsonSchemaMetric, Tag("json_schema")]
    | Annotated[NumericMetric, Tag("numeric")]
    | Annotated[LatencyMetric, Tag("latency")]
    | Annotated[CustomMetric, Tag("custom")],
    Discriminator(_tag),
]


class EvaluationConfig(Model):
    """The metrics of every case that does not bring its own."""

    not_yet: ClassVar[dict[str, str]] = {"model": "judges"}

    metrics: Annotated[list[Metric], Field(min_length=1)]
    """The metrics."""


def metric_label(metric: EvaluationMetric) -> str:
    """The name under which a metric's rows appear in reports."""
    if isinstance(metric, CustomMetric):
        return metric.name or metric.metric.partition(":")[2]
    return metric.metric


__all__ = ["BUILT_IN", "EvaluationConfig", "LLMProvider", "Metric", "RAGMetricType", "metric_label"]
