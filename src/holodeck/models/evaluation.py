"""Metrics: one model per metric, so that an option of another metric is an unknown key."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from holodeck.models.base import (
    AbsoluteTolerance,
    Json,
    Milliseconds,
    Model,
    NonBlank,
    Ratio,
    RelativeTolerance,
)
from holodeck.models.judged_metrics import (
    AZURE_METRICS,
    SAFETY_METRICS,
    AzureMetric,
    AzureSafetyMetric,
    DeepEvalMetric,
    GEvalMetric,
    JudgeMetric,
    RAGMetric,
    RAGMetricType,
)
from holodeck.models.llm import LLMProvider
from holodeck.models.metric import MetricKind, MetricSettings
from holodeck.models.on_demand import OnDemand

__all__ = [
    "BUILT_IN",
    "BY_TYPE",
    "EvaluationConfig",
    "LLMProvider",
    "Metric",
    "MetricSettings",
    "RAGMetricType",
]


class CodeMetric(MetricSettings):
    """A Python callable beside the agent.yaml that is given the whole case."""

    type: Literal["code"]
    """Python code of yours."""
    grader: Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+$")]
    """`module:callable`."""
    name: NonBlank | None = None
    """What reports call it; else the callable's own name."""

    not_options: ClassVar[frozenset[str]] = frozenset({"type", "grader", "name"})

    @property
    def kind(self) -> MetricKind:
        """What its rows in reports say about where it comes from."""
        return "code"

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return "code"

    @property
    def label(self) -> str:
        """The name under which its rows appear in reports."""
        return self.name or self.grader.partition(":")[2]

    @property
    def user_code(self) -> str | None:
        """The callable."""
        return self.grader


class EvaluationMetric(MetricSettings):
    """A metric that is computed without asking a model."""

    not_yet: ClassVar = {
        "custom_prompt": "a question of your own is 'type: judge' or 'type: geval'",
        "scale": "scores are 0 to 1",
    }

    type: Literal["standard"] = "standard"
    """May be left out."""
    metric: NonBlank
    """Which metric: one of the names below, or `module:callable`."""

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return self.metric


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


class SemanticSimilarityMetric(ComparingMetric):
    """Cosine of the embeddings of answer and reference, computed in the process."""

    metric: Literal["semantic_similarity"]
    threshold: Ratio = 0.7
    """Score to reach, 0 to 1; unrelated texts are below 0.2."""


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


class PassFailMetric(EvaluationMetric):
    """The answer holds the ground truth, and the expected tools were called by exactly their
    names."""

    metric: Literal["passfail"]


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
    absolute_tolerance: AbsoluteTolerance = 1e-6
    """How far off the answer may be."""
    relative_tolerance: RelativeTolerance = 0.0
    """How far off the answer may be, as a share of the number: 0.05 is 5 %."""
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

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return "custom"

    @property
    def label(self) -> str:
        """The name under which its rows appear in reports."""
        return self.name or self.metric.partition(":")[2]

    @property
    def user_code(self) -> str | None:
        """The callable."""
        return self.metric


BUILT_IN: dict[str, type[MetricSettings]] = {
    "f1_score": F1ScoreMetric,
    "bleu": BLEUMetric,
    "rouge": ROUGEMetric,
    "meteor": METEORMetric,
    "semantic_similarity": SemanticSimilarityMetric,
    "exact_match": ExactMatchMetric,
    "equality": ExactMatchMetric,
    "contains": ContainsMetric,
    "not_contains": NotContainsMetric,
    "passfail": PassFailMetric,
    "regex": RegexMetric,
    "json_schema": JsonSchemaMetric,
    "numeric": NumericMetric,
    "latency": LatencyMetric,
    **dict.fromkeys(AZURE_METRICS, AzureMetric),
    **dict.fromkeys(SAFETY_METRICS, AzureSafetyMetric),
}
"""What `metric:` may name without a `type`."""
BY_TYPE: dict[str, tuple[type[MetricSettings], ...]] = {
    "geval": (GEvalMetric,),
    "rag": (RAGMetric,),
    "deepeval": (DeepEvalMetric,),
    "azure": (AzureMetric, AzureSafetyMetric),
    "judge": (JudgeMetric,),
    "code": (CodeMetric,),
}
"""What the other types hold."""


def _tag(data: Any) -> str | None:
    """Which model a metric's mapping belongs to."""
    kind, name = _part(data, "type"), _part(data, "metric")
    if kind == "azure" and name in SAFETY_METRICS:
        return "safety"
    if isinstance(kind, str) and kind in BY_TYPE:
        return kind
    if kind not in (None, "standard") or not isinstance(name, str):
        return None
    if ":" in name:
        return "custom"
    return "azure" if name in AZURE_METRICS else _ALIASES.get(name, name)


_ALIASES = {"equality": "exact_match", **dict.fromkeys(SAFETY_METRICS, "safety")}


def _part(data: Any, key: str) -> Any:
    return data.get(key) if isinstance(data, dict) else getattr(data, key, None)


Metric = Annotated[
    Annotated[OnDemand[F1ScoreMetric], Tag("f1_score")]
    | Annotated[OnDemand[BLEUMetric], Tag("bleu")]
    | Annotated[OnDemand[ROUGEMetric], Tag("rouge")]
    | Annotated[OnDemand[METEORMetric], Tag("meteor")]
    | Annotated[OnDemand[SemanticSimilarityMetric], Tag("semantic_similarity")]
    | Annotated[OnDemand[ExactMatchMetric], Tag("exact_match")]
    | Annotated[OnDemand[ContainsMetric], Tag("contains")]
    | Annotated[OnDemand[NotContainsMetric], Tag("not_contains")]
    | Annotated[OnDemand[PassFailMetric], Tag("passfail")]
    | Annotated[OnDemand[RegexMetric], Tag("regex")]
    | Annotated[OnDemand[JsonSchemaMetric], Tag("json_schema")]
    | Annotated[OnDemand[NumericMetric], Tag("numeric")]
    | Annotated[OnDemand[LatencyMetric], Tag("latency")]
    | Annotated[OnDemand[CustomMetric], Tag("custom")]
    | Annotated[OnDemand[GEvalMetric], Tag("geval")]
    | Annotated[OnDemand[RAGMetric], Tag("rag")]
    | Annotated[OnDemand[DeepEvalMetric], Tag("deepeval")]
    | Annotated[OnDemand[AzureMetric], Tag("azure")]
    | Annotated[OnDemand[AzureSafetyMetric], Tag("safety")]
    | Annotated[OnDemand[JudgeMetric], Tag("judge")]
    | Annotated[OnDemand[CodeMetric], Tag("code")],
    Discriminator(_tag),
]


class EvaluationConfig(Model):
    """The metrics of every case that does not bring its own, and who judges."""

    model: LLMProvider | None = None
    """The model that judges, for every metric that names none and for `criteria`; else the agent's
    own."""
    metrics: Annotated[list[Metric], Field(min_length=1)] = []
    """The metrics; may be left out where only a `model` is named, for `criteria` say."""

    @model_validator(mode="after")
    def _says_something(self) -> "EvaluationConfig":
        if not self.metrics and self.model is None:
            raise ValueError("'metrics' is missing: write 'metrics: [{metric: contains, …}]', say")
        return self
