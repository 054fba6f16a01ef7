"""The metrics of an agent.yaml; a mapping becomes an object of the class that its keys select."""

import operator
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Field, Tag, model_validator

from holodeck.models.base import BuiltWhenUsed, Model
from holodeck.models.llm import LLMProvider
from holodeck.models.metrics import azure, judge  # noqa: F401 - so that their classes are known
from holodeck.models.metrics.base import MetricSettings, metric_class, metric_classes
from holodeck.models.metrics.deepeval import GEvalMetric, RAGMetric, RAGMetricType
from holodeck.models.metrics.text import EvaluationMetric

__all__ = ["EvaluationConfig", "EvaluationMetric", "GEvalMetric", "RAGMetric", "RAGMetricType"]


def _tag_of(value: Any) -> str | None:
    """Return the tag of the class of a metric or of its mapping; None if there is none."""
    if isinstance(value, MetricSettings):
        return value.tag()
    model = metric_class(value) if isinstance(value, dict) else None
    return None if model is None else model.tag()


if TYPE_CHECKING:
    Metric = MetricSettings
else:
    Metric = Annotated[
        reduce(
            operator.or_,
            (
                Annotated[model, BuiltWhenUsed(model), Tag(model.tag())]
                for model in metric_classes()
            ),
        ),
        Discriminator(_tag_of),
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
