"""Metrics that need no judge, and those that your own code computes."""

from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import Field, model_validator

from holodeck.errors import ConfigError
from holodeck.lib.support.text import did_you_mean_or_list
from holodeck.models.base import (
    AbsoluteTolerance,
    Json,
    Milliseconds,
    NonBlank,
    Ratio,
    RelativeTolerance,
)
from holodeck.models.metrics.base import (
    CUSTOM_PROMPT,
    MODULE_CALLABLE,
    MetricSettings,
    metric_class,
    metric_names,
)


class EvaluationMetric(MetricSettings):
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

    def __new__(cls, **keys: Any) -> "EvaluationMetric":
        """Return an object of the class that has the name, as for a mapping in agent.yaml."""
        if cls is not EvaluationMetric:
            return super().__new__(cls)
        name = keys.get("metric")
        if not isinstance(name, str):
            raise TypeError("EvaluationMetric() needs 'metric', the name of a metric")
        model = metric_class({"metric": name})
        if model is None:
            hint = did_you_mean_or_list(name, metric_names())
            raise ConfigError("metric", f"unknown metric {name!r}{hint}")
        if issubclass(model, EvaluationMetric):
            return super().__new__(model)  # whose __init__ gets the keys
        return cast(EvaluationMetric, model(**keys))


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
        expected = self.values if self.value is None else [self.value]
        return None if expected is None else [str(text) for text in expected]


class NLPMetric(ComparingMetric):
    """Measures how similar the response and the reference are."""

    family: ClassVar = "similarity"


Variant = Literal["rouge1", "rouge2", "rougeL"]
Tokenize = Literal["zh", "char"]


class WordMetric(NLPMetric):
    """Compares words."""

    tokenize: Tokenize | None = None
    """How words are found in languages without spaces: `zh` for Chinese, `char` with each character
    a word."""


class F1ScoreMetric(WordMetric):
    """Token overlap as in SQuAD."""

    metric: Literal["f1_score"]


class BLEUMetric(WordMetric):
    """Sentence BLEU by sacrebleu with exponential smoothing."""

    metric: Literal["bleu"]


class ROUGEMetric(WordMetric):
    """ROUGE F-measure."""

    metric: Literal["rouge"]
    variant: Variant = "rougeL"
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

    family: ClassVar = "text"

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

    family: ClassVar = "observation"

    metric: Literal["passfail"]


class RegexMetric(EvaluationMetric):
    """A regular expression matches the response."""

    family: ClassVar = "text"

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

    family: ClassVar = "json_schema"

    metric: Literal["json_schema"]
    schema_: dict[str, Json] = Field(alias="schema")
    """The JSON schema."""
    allow_fenced: bool = False
    """Whether JSON inside a Markdown fence is accepted."""


Pick = Literal["only", "first", "last", "any"]


class NumericMetric(ComparingMetric):
    """The response contains the right number."""

    family: ClassVar = "text"

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
    pick: Pick = "only"
    """Which number of the response counts; `only` requires exactly one."""


class LatencyMetric(EvaluationMetric):
    """The agent responds in time."""

    family: ClassVar = "observation"

    metric: Literal["latency"]
    max_ms: Milliseconds
    """The time limit in milliseconds."""


class CustomMetric(EvaluationMetric):
    """A Python callable of yours, `module:callable`, imported from the folder of the agent.yaml
    first."""

    metric: Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+$")]
    """The callable."""
    name: NonBlank | None = None
    """The metric's name in reports; the callable's name by default."""

    @property
    def label(self) -> str:
        return self.name or self.metric.partition(":")[2]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return (MODULE_CALLABLE,)

    @property
    def user_code(self) -> str | None:
        return self.metric


class CodeMetric(MetricSettings):
    """A Python callable of yours that gets the whole observation of a case."""

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
