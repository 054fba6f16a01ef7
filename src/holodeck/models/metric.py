"""What all metrics have: how they are run, and what reports call them."""

from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from holodeck.models.base import Milliseconds, Model, Ratio
from holodeck.models.llm import LLMProvider

MetricKind = Literal["standard", "rag", "geval", "deepeval", "azure", "judge", "code"]


class MetricSettings(Model):
    """How a metric is run; what every metric has."""

    threshold: Ratio | None = None
    """Score to reach, 0 to 1; without one the metric's own verdict counts, if it has one."""
    enabled: bool = True
    """Whether the metric is computed at all."""
    required: bool = True
    """Whether the case fails where the metric does not pass; false only reports it."""
    fail_on_error: bool = False
    """A metric that cannot be computed leaves the case undecided (exit 4); true makes it a failure
    (exit 1). It never passes."""
    retry_on_failure: Annotated[int, Field(ge=1, le=3)] | None = None
    """How often a metric that could not be computed is tried again."""
    timeout_ms: Milliseconds | None = None
    """Time limit of the metric in milliseconds; 60000 if not given."""

    @model_validator(mode="after")
    def _is_asked_once_what_its_errors_mean(self) -> "MetricSettings":
        if self.fail_on_error and not self.required:
            raise ValueError("'required: false' never fails a case; remove 'fail_on_error'")
        return self

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        raise TypeError(f"{type(self).__name__} is no metric by itself")

    @property
    def kind(self) -> MetricKind:
        """What its rows in reports say about where it comes from."""
        return "standard"

    @property
    def label(self) -> str:
        """The name under which its rows appear in reports."""
        return self.row

    @property
    def user_code(self) -> str | None:
        """The `module:callable` of the user's that it runs; None if it runs none."""
        return None

    def options(self) -> dict[str, Any]:
        """What its own keys say, under the names they have in agent.yaml."""
        return {key: getattr(self, name) for key, name in _option_fields(type(self))}

    not_options: ClassVar[frozenset[str]] = frozenset({"type", "metric"})
    """Keys that say which metric it is and not how it is computed."""


@cache
def _option_fields(metric: type[MetricSettings]) -> tuple[tuple[str, str], ...]:
    """Key in agent.yaml and name of each field; once for a kind, as every case may have its own."""
    no_options = MetricSettings.model_fields.keys() | metric.not_options
    fields = metric.model_fields
    return tuple((fields[name].alias or name, name) for name in fields if name not in no_options)


class JudgedMetric(MetricSettings):
    """A metric whose score a model gives."""

    threshold: Ratio = 0.5
    """Score to reach, 0 to 1."""
    model: LLMProvider | None = None
    """The model that judges; else the one of `evaluations`, else the agent's own."""

    not_options: ClassVar[frozenset[str]] = frozenset({"type", "metric", "model"})
