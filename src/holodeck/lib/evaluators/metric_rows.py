"""The table of metrics: what computes each, and what it needs to be installed."""

from dataclasses import dataclass

_HERE = "holodeck.lib.evaluators"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric."""

    target: str
    """`module:attribute` of its evaluator."""
    description: str
    has_verdict: bool = True
    """Whether it passes or fails by itself; one that does not needs a threshold to fail a test."""
    extra: str | None = None
    """The optional part of holodeck that it needs, and the modules that come with it."""
    modules: tuple[str, ...] = ()
    asks: bool = False
    """Whether it asks a model that judges."""


METRICS: dict[str, MetricRow] = {
    "f1_score": MetricRow(
        f"{_HERE}.nlp_metrics:F1ScoreEvaluator",
        "F1 of the words of answer and reference",
        has_verdict=False,
    ),
    "bleu": MetricRow(
        f"{_HERE}.nlp_metrics:BLEUEvaluator",
        "Sentence BLEU with exponential smoothing",
        has_verdict=False,
        extra="nlp",
        modules=("sacrebleu",),
    ),
    "rouge": MetricRow(
        f"{_HERE}.nlp_metrics:ROUGEEvaluator",
        "ROUGE-1, -2 or -L F-measure",
        has_verdict=False,
        extra="nlp",
        modules=("rouge_score", "nltk"),
    ),
    "meteor": MetricRow(
        f"{_HERE}.nlp_metrics:METEOREvaluator",
        "METEOR with exact and stem matches",
        has_verdict=False,
        extra="nlp",
        modules=("nltk",),
    ),
    "exact_match": MetricRow(f"{_HERE}.text_metrics:ExactMatchEvaluator", "The answer is the text"),
    "equality": MetricRow(
        f"{_HERE}.text_metrics:ExactMatchEvaluator", "Another name of exact_match"
    ),
    "contains": MetricRow(
        f"{_HERE}.text_metrics:ContainsEvaluator", "The answer contains the text"
    ),
    "not_contains": MetricRow(
        f"{_HERE}.text_metrics:NotContainsEvaluator", "The answer does not contain the text"
    ),
    "regex": MetricRow(f"{_HERE}.regex_metric:RegexEvaluator", "A pattern matches the answer"),
    "json_schema": MetricRow(
        f"{_HERE}.json_schema:JsonSchemaEvaluator", "The answer is JSON by a schema"
    ),
    "numeric": MetricRow(f"{_HERE}.numeric:NumericEvaluator", "The answer holds the number"),
    "latency": MetricRow(f"{_HERE}.latency:LatencyEvaluator", "The agent answered in time"),
}
