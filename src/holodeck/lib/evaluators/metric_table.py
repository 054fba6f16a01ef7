"""From a metric of the configuration to what computes it, and what is known beforehand."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.evaluators.base import BaseEvaluator, RetryConfig
from holodeck.lib.evaluators.custom import CustomEvaluator
from holodeck.lib.evaluators.metric_rows import METRICS
from holodeck.lib.evaluators.scored import EvaluatorOptions
from holodeck.lib.judging.judge import Judge
from holodeck.lib.registry import Registry, load_callable
from holodeck.models.agent import Agent
from holodeck.models.evaluation import MetricSettings
from holodeck.models.llm import LLMProvider
from holodeck.models.metric import JudgedMetric

if TYPE_CHECKING:
    from holodeck.lib.evaluators.semantic_similarity import Likeness

EVALUATORS: Registry[Callable[..., BaseEvaluator]] = Registry(
    "metric", {name: row.target for name, row in METRICS.items()}
)


def build_evaluator(
    metric: MetricSettings,
    base_dir: Path | None = None,
    *,
    where: str = "evaluations",
    judge: Judge | None = None,
    embeddings: "Callable[[], Likeness] | None" = None,
) -> BaseEvaluator:
    """The evaluator that a metric of the configuration describes. Raises ConfigError.

    A `module:callable` is imported, from `base_dir` first; that runs the user's code. `judge` is
    asked by metrics that ask one; without it they can be built and not be computed. `embeddings`
    gives what compares meanings, else it is the model that holodeck knows.
    """
    how = EvaluatorOptions(timeout=_seconds(metric), retry_config=_retries(metric))
    if metric.user_code is not None:
        return _custom(metric, metric.user_code, base_dir, where, how)
    refuse_missing_extra(metric)
    evaluator = EVALUATORS.load(metric.row, where=where)
    asked: dict[str, Any] = {"judge": judge} if asks_a_judge(metric) else {}
    if _embeds(metric):
        asked["embeddings"] = embeddings
    try:
        return evaluator(threshold=metric.threshold, **metric.options(), **asked, **how)
    except ConfigError as error:
        raise ConfigError(f"{where}.{error.field}", error.message) from error


def refuse_missing_extra(metric: MetricSettings) -> None:
    """Raise MissingExtra for a metric whose library is not installed."""
    row = METRICS.get(metric.row)
    if row is not None and row.extra and any(_is_missing(name) for name in row.modules):
        raise MissingExtra(row.extra, f"metric {metric.row}")


def asks_a_judge(metric: MetricSettings) -> bool:
    """Whether computing the metric asks a model."""
    row = METRICS.get(metric.row)
    return row is not None and row.asks


def _embeds(metric: MetricSettings) -> bool:
    row = METRICS.get(metric.row)
    return row is not None and row.embeds


def judge_of(agent: Agent, metric: MetricSettings) -> LLMProvider | None:
    """The model that judges: the metric's, else that of `evaluations`, else the agent's own."""
    own = metric.model if isinstance(metric, JudgedMetric) else None
    return own or agent.judging_model


def can_fail(metric: MetricSettings) -> bool:
    """Whether some answer exists for which the case does not pass because of the metric."""
    if not (metric.enabled and metric.required):
        return False
    if metric.threshold is not None:
        return metric.threshold > 0
    row = METRICS.get(metric.row)
    return row is None or row.has_verdict


def _custom(
    metric: MetricSettings,
    target_name: str,
    base_dir: Path | None,
    where: str,
    how: EvaluatorOptions,
) -> BaseEvaluator:
    target = load_callable(target_name, base_dir, where=where)
    if isinstance(target, type) and issubclass(target, BaseEvaluator):
        return target(**how)
    return CustomEvaluator(target, metric.threshold, **how)


def _is_missing(module: str) -> bool:
    try:
        return find_spec(module) is None
    except ModuleNotFoundError:  # the package that a dotted name begins with
        return True


def _seconds(metric: MetricSettings) -> float:
    return 60.0 if metric.timeout_ms is None else metric.timeout_ms / 1000


def _retries(metric: MetricSettings) -> RetryConfig:
    """Asked for, every error is tried again; otherwise those that tend to pass by themselves."""
    if metric.retry_on_failure is None:
        return RetryConfig()
    return RetryConfig(max_retries=metric.retry_on_failure, every_error=True)
