"""The metrics of an agent.yaml: one model each, so that keys of other metrics are unknown."""

import operator
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import Discriminator, Field, Tag, model_validator

from holodeck.errors import ConfigError
from holodeck.lib.support.text import did_you_mean_or_list
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
    AzureMetric,
    AzureSafetyMetric,
    DeepEvalMetric,
    GEvalMetric,
    JudgeMetric,
    RAGMetric,
    RAGMetricType,
)
from holodeck.models.library_metrics import AzureClassMetric, DeepEvalClassMetric
from holodeck.models.llm import LLMProvider
from holodeck.models.metric import (
    AZURE_METRICS,
    CUSTOM_PROMPT,
    SAFETY_METRICS,
    MetricKind,
    MetricSettings,
)

__all__ = [
    "BUILT_IN",
    "BY_TYPE",
    "EvaluationConfig",
    "GEvalMetric",
    "LLMProvider",
    "Metric",
    "MetricSettings",
    "RAGMetric",
    "RAGMetricType",
    "Tokenize",
]


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(Model)


class _MadeByName(ModelMetaclass):
    """Lets `EvaluationMetric(metric="bleu")` make the model of that metric, as YAML does."""

    def __call__(cls, **values: Any) -> Any:  # noqa: N805 - of a metaclass
        if cls is not EvaluationMetric:
            return super().__call__(**values)
        name = values.get("metric")
        if not isinstance(name, str):
            raise TypeError("EvaluationMetric() needs 'metric', the name of a metric")
        if ":" in name:
            return CustomMetric(**values)
        if name not in BUILT_IN:
            hint = did_you_mean_or_list(name, BUILT_IN)
            raise ConfigError("metric", f"unknown metric {name!r}{hint}")
        return BUILT_IN[name](**values)


class EvaluationMetric(MetricSettings, metaclass=_MadeByName):
    """A metric that needs no judge.

    In Python, `EvaluationMetric(metric="bleu")` is a `BLEUMetric`, and so on for every name that
    YAML accepts without a `type`. Raises ConfigError for an unknown name.
    """

    not_supported_yet: ClassVar = {
        "custom_prompt": CUSTOM_PROMPT,
        "scale": "the scores of this metric are 0 to 1",
    }

    type: Literal["standard"] = "standard"
    """May be omitted."""
    metric: NonBlank
    """The metric: one of the names below, or `module:callable`."""

    @property
    def evaluator_name(self) -> str:
        return self.metric


class ComparingMetric(EvaluationMetric):
    """Compares the response with `value` or `values`, or else with the case's `ground_truth`."""

    value: NonBlank | None = None
    """The expected text."""
    values: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """Several expected texts; the best match counts unless the metric says otherwise."""

    @model_validator(mode="after")
    def _check_one_reference(self) -> "ComparingMetric":
        if self.value is not None and self.values is not None:
            raise ValueError("write either 'value' or 'values', not both")
        return self

    def expected_texts(self) -> list[str] | None:
        """Return the expected texts; None means the case's ground truth."""
        return self.values if self.value is None else [self.value]


class NLPMetric(ComparingMetric):
    """Measures how similar the response and the reference are."""

    evaluator_modules = ("nlp_metrics",)


Tokenize = Literal["zh", "ja-mecab", "char", "flores200"]


class WordMetric(NLPMetric):
    """Compares words."""

    tokenize: Tokenize | None = None
    """How words are found in languages without spaces: `zh` Chinese, `ja-mecab` Japanese, `char`
    each character a word, `flores200` pieces of words in 200 languages. Default: the rules of the
    metric, for languages with spaces."""


class F1ScoreMetric(WordMetric):
    """Token overlap as in SQuAD."""

    metric: Literal["f1_score"]


class BLEUMetric(WordMetric):
    """Sentence BLEU by sacrebleu with exponential smoothing."""

    metric: Literal["bleu"]


class ROUGEMetric(WordMetric):
    """ROUGE F-measure."""

    metric: Literal["rouge"]
    variant: Literal["rouge1", "rouge2", "rougeL"] = "rougeL"
    """The variant whose F-measure is the score."""


class METEORMetric(WordMetric):
    """METEOR with exact and stem matches (no synonyms, so nothing is downloaded)."""

    metric: Literal["meteor"]


class SemanticSimilarityMetric(NLPMetric):
    """Cosine similarity of the embeddings of response and reference, computed in the process."""

    metric: Literal["semantic_similarity"]
    threshold: Ratio = 0.7
    """Score to reach, 0 to 1; unrelated texts score below 0.2."""


class TextMetric(ComparingMetric):
    """Compares text literally, after the configured normalization."""

    evaluator_modules = ("text_metrics",)

    ignore_case: bool = False
    """Whether upper and lower case are the same."""
    ignore_punctuation: bool = False
    """Whether punctuation is removed from both sides."""
    normalize_whitespace: bool = False
    """Whether a run of white space counts as one space."""


class ExactMatchMetric(TextMetric):
    """The response equals the text."""

    metric: Literal["exact_match", "equality"]
    strip: bool = True
    """Whether white space around the response is ignored."""

    @property
    def label(self) -> str:
        return self.name or self.metric

    @property
    def evaluator_name(self) -> str:
        """`equality` is another name of `exact_match`."""
        return "exact_match"


class ContainsMetric(TextMetric):
    """The response contains the text."""

    metric: Literal["contains"]
    match: Literal["all", "any"] = "all"
    """Whether the response must contain all `values` or any one of them."""


class NotContainsMetric(TextMetric):
    """The response contains none of the texts."""

    metric: Literal["not_contains"]


class PassFailMetric(EvaluationMetric):
    """The response contains the ground truth, and the agent called the expected tools by exactly
    their names."""

    evaluator_modules = ("observation_metrics",)

    metric: Literal["passfail"]


class RegexMetric(EvaluationMetric):
    """A regular expression matches the response."""

    evaluator_modules = ("text_metrics",)

    metric: Literal["regex"]
    pattern: NonBlank
    """The regular expression."""
    fullmatch: bool = False
    """Whether the pattern must match the whole response."""
    ignore_case: bool = False
    """Whether upper and lower case are the same."""
    time_limit_ms: Milliseconds = 1000
    """A pattern that takes longer is an error, not a hang."""


class JsonSchemaMetric(EvaluationMetric):
    """The response is JSON that is valid by a schema."""

    evaluator_modules = ("json_schema",)

    metric: Literal["json_schema"]
    schema_: dict[str, Json] = Field(alias="schema")
    """The JSON schema."""
    allow_fenced: bool = False
    """Whether JSON inside a Markdown fence is accepted."""


class NumericMetric(ComparingMetric):
    """The response contains the right number."""

    evaluator_modules = ("text_metrics",)

    metric: Literal["numeric"]
    value: float | NonBlank | None = None  # type: ignore[assignment]
    """The expected number."""
    values: Annotated[list[float | NonBlank], Field(min_length=1)] | None = None  # type: ignore[assignment]
    """Several expected numbers, any of which is right."""
    absolute_tolerance: AbsoluteTolerance = 1e-6
    """The largest accepted difference."""
    relative_tolerance: RelativeTolerance = 0.0
    """The largest accepted difference as a share of the number: 0.05 is 5 %."""
    accept_percent: bool = False
    """Whether 45 % counts as 0.45."""
    accept_thousands_separators: bool = False
    """Whether 1,234 counts as 1234."""
    pick: Literal["only", "first", "last", "any"] = "only"
    """Which number of the response counts; `only` requires exactly one."""


RetrievalMeasure = Literal[
    "ndcg", "xdcg", "fidelity", "top1_relevance", "top3_max_relevance", "holes"
]
MAX_RELEVANCE = 4


class DocumentRetrievalMetric(EvaluationMetric):
    """The best documents were retrieved first, by your labels; computed by Azure AI Evaluation in
    the process."""

    kind: ClassVar[MetricKind] = "azure"
    evaluator_modules = ("azure_retrieval",)

    type: Literal["standard", "azure"] = "azure"  # type: ignore[assignment]
    """May be omitted."""
    metric: Literal["document_retrieval"]
    threshold: Ratio = 0.5
    """Score to reach, 0 to 1."""
    relevance: Annotated[
        dict[NonBlank, Annotated[int, Field(ge=0, le=MAX_RELEVANCE)]], Field(min_length=1)
    ]
    """How relevant each document is to the input, 0 to 4. A document is named by a text that its
    passages contain, such as its title."""
    measure: RetrievalMeasure = "ndcg"
    """The score: NDCG or XDCG of the first three, the share of everything relevant that was found
    (`fidelity`), the label of the first or the best of the first three, or the share of passages
    with a label (`holes`)."""

    @model_validator(mode="after")
    def _check_relevant(self) -> "DocumentRetrievalMetric":
        if not any(self.relevance.values()):
            raise ValueError("'relevance' labels no document above 0, so nothing can be found")
        return self


class LatencyMetric(EvaluationMetric):
    """The agent responds in time."""

    evaluator_modules = ("observation_metrics",)

    metric: Literal["latency"]
    max_ms: Milliseconds
    """The time limit in milliseconds."""


class CustomMetric(EvaluationMetric):
    """A Python callable of yours, `module:callable`, imported from the folder of the agent.yaml
    first."""

    metric: Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+$")]
    name: NonBlank | None = None
    """The metric's name in reports; the callable's name by default."""

    @property
    def label(self) -> str:
        return self.name or self.metric.partition(":")[2]

    @property
    def user_code(self) -> str | None:
        return self.metric


class CodeMetric(MetricSettings):
    """A Python callable of yours that gets the whole observation of a case."""

    kind: ClassVar[MetricKind] = "code"
    not_options: ClassVar[frozenset[str]] = frozenset({"type", "grader", "name", "judge"})

    type: Literal["code"] = "code"
    """Your own Python code."""
    grader: Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+$")]
    """The callable as `module:callable`."""
    judge: bool = False
    """Whether the callable gets the judge of the run, as its parameter `judge`."""
    name: NonBlank | None = None
    """The metric's name in reports; the callable's name by default."""

    @property
    def label(self) -> str:
        return self.name or self.grader.partition(":")[2]

    @property
    def user_code(self) -> str | None:
        return self.grader


def _names_of(metric: type[MetricSettings], key: str = "metric") -> tuple[str, ...]:
    """Return the values that select the metric; empty if the key takes any text."""
    return get_args(metric.model_fields[key].annotation)


_STANDARD: dict[str, type[MetricSettings]] = {
    name: model
    for model in list(globals().values())
    if isinstance(model, type) and issubclass(model, EvaluationMetric)
    for name in _names_of(model)
}
"""Every metric of this module that has names, in the order of definition."""
_TAGS: dict[type[MetricSettings], str] = {
    **{model: _names_of(model)[0] for model in _STANDARD.values()},
    CustomMetric: "custom",
    GEvalMetric: "geval",
    RAGMetric: "rag",
    DeepEvalMetric: "deepeval",
    AzureMetric: "azure",
    AzureSafetyMetric: "safety",
    JudgeMetric: "judge",
    DeepEvalClassMetric: "deepeval class",
    AzureClassMetric: "azure class",
    CodeMetric: "code",
}
"""Model → its tag in the union `Metric`; the locations of validation errors contain it."""
BUILT_IN: Mapping[str, type[MetricSettings]] = {
    **_STANDARD,
    **dict.fromkeys(AZURE_METRICS, AzureMetric),
    **dict.fromkeys(SAFETY_METRICS, AzureSafetyMetric),
}
"""The models of the names that `metric:` accepts without a `type`."""
BY_TYPE: Mapping[str, tuple[type[MetricSettings], ...]] = {
    "geval": (GEvalMetric,),
    "rag": (RAGMetric,),
    "deepeval": (DeepEvalMetric, DeepEvalClassMetric),
    "azure": (AzureMetric, AzureSafetyMetric, AzureClassMetric),
    "judge": (JudgeMetric,),
    "code": (CodeMetric,),
}
"""The models of each `type` other than `standard`."""


_UNJUDGED_BY_AZURE = {
    **dict.fromkeys(SAFETY_METRICS, "safety"),
    "document_retrieval": "document_retrieval",
}
"""Metric of `type: azure` that asks no judge → its tag."""


def _tag(data: Any) -> str | None:
    """Return the tag of the model for a metric's mapping; None if no model fits."""
    if not isinstance(data, dict):
        return _TAGS.get(type(data)) if isinstance(data, MetricSettings) else None
    kind, name = data.get("type"), data.get("metric")
    if kind == "azure" and isinstance(name, str) and name in _UNJUDGED_BY_AZURE:
        return _UNJUDGED_BY_AZURE[name]
    if isinstance(kind, str) and kind in BY_TYPE:
        with_class = f"{kind} class"
        names_class = "class" in data and "metric" not in data
        return with_class if names_class and with_class in _TAGS.values() else kind
    if kind not in (None, "standard") or not isinstance(name, str):
        return None
    if ":" in name:
        return "custom"
    model = BUILT_IN.get(name)
    return name if model is None else _TAGS[model]


if TYPE_CHECKING:
    Metric = MetricSettings
else:
    Metric = Annotated[
        reduce(
            operator.or_,
            (Annotated[model, Tag(tag)] for model, tag in _TAGS.items()),
        ),
        Discriminator(_tag),
    ]


class EvaluationConfig(Model):
    """The metrics of every case that has no metrics of its own, and the judge."""

    model: LLMProvider | None = None
    """The judge of every metric that names none, and of `criteria`. Default: the agent's own
    model."""
    metrics: Annotated[list[Metric], Field(min_length=1)] = []
    """The metrics; may be omitted if only a `model` is needed, for `criteria` for example."""

    @model_validator(mode="after")
    def _check_not_empty(self) -> "EvaluationConfig":
        if not self.metrics and self.model is None:
            raise ValueError("'metrics' is missing; write 'metrics: [{metric: contains, …}]'")
        return self
