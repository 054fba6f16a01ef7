"""The metrics by name: what computes each, what it needs, and whether it can fail a test."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.evaluators.base import BaseEvaluator, RetryConfig
from holodeck.lib.evaluators.custom import CustomEvaluator
from holodeck.lib.evaluators.scored import How
from holodeck.lib.registry import Registry, load_callable
from holodeck.models.evaluation import ComparingMetric, CustomMetric, EvaluationMetric

_HERE = "holodeck.lib.evaluators"
_HOW_TO_RUN = frozenset(EvaluationMetric.model_fields)


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

EVALUATORS: Registry[Callable[..., BaseEvaluator]] = Registry(
    "metric", {name: row.target for name, row in METRICS.items()}
)


def build_evaluator(
    metric: EvaluationMetric, base_dir: Path | None = None, *, where: str = "evaluations"
) -> BaseEvaluator:
    """The evaluator that a metric of the configuration describes. Raises ConfigError.

    A `module:callable` is imported, from `base_dir` first; that runs the user's code.
    """
    how = How(timeout=_seconds(metric), retry_config=_retries(metric))
    if isinstance(metric, CustomMetric):
        return _custom(metric, base_dir, where, how)
    row = METRICS.get(metric.metric)
    if row is not None and row.extra and any(find_spec(name) is None for name in row.modules):
        raise MissingExtra(row.extra, f"metric {metric.metric}")
    evaluator = EVALUATORS.load(metric.metric, where=where)
    try:
        return evaluator(threshold=metric.threshold, **_options(metric), **how)
    except ConfigError as error:
        raise ConfigError(f"{where}.{error.field}", error.message) from error


def lacks_reference(metric: EvaluationMetric, ground_truth: str | None) -> bool:
    """Whether the metric compares, and a case with that ground truth gives it nothing to."""
    return isinstance(metric, ComparingMetric) and metric.wanted() is None and ground_truth is None


def can_fail(metric: EvaluationMetric) -> bool:
    """Whether some answer exists for which the metric does not pass."""
    if not metric.enabled:
        return False
    if metric.threshold is not None:
        return metric.threshold > 0
    row = METRICS.get(metric.metric)
    return row is None or row.has_verdict


def _custom(metric: CustomMetric, base_dir: Path | None, where: str, how: How) -> BaseEvaluator:
    target = load_callable(metric.metric, base_dir, where=where)
    if isinstance(target, type) and issubclass(target, BaseEvaluator):
        return target(**how)
    return CustomEvaluator(target, metric.threshold, **how)


def _seconds(metric: EvaluationMetric) -> float:
    return 60.0 if metric.timeout_ms is None else metric.timeout_ms / 1000


def _retries(metric: EvaluationMetric) -> RetryConfig:
    """Asked for, every error is tried again; otherwise those that tend to pass by themselves."""
    if metric.retry_on_failure is None:
        return RetryConfig()
    return RetryConfig(max_retries=metric.retry_on_failure, every_error=True)


def _options(metric: EvaluationMetric) -> dict[str, Any]:
    """What a metric's own fields say, under the names they have in agent.yaml."""
    fields = type(metric).model_fields
    return {
        field.alias or name: getattr(metric, name)
        for name, field in fields.items()
        if name not in _HOW_TO_RUN
    }
