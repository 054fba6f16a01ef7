"""The settings that all metrics of an agent.yaml share, and how they name their evaluator."""

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from holodeck.models.base import Milliseconds, Model, NonBlank, Ratio
from holodeck.models.llm import LLMProvider
from holodeck.models.metrics.judge_trust import TrustSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

MetricKind = Literal["standard", "rag", "geval", "deepeval", "azure", "judge", "code"]

AzureName = Literal[
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
]
AZURE_METRICS: tuple[str, ...] = get_args(AzureName)

SafetyName = Literal[
    "safety",
    "violence",
    "sexual",
    "self_harm",
    "hate_unfairness",
    "indirect_attack",
    "protected_material",
    "code_vulnerability",
    "groundedness_pro",
]
SAFETY_METRICS: tuple[str, ...] = get_args(SafetyName)

CUSTOM_PROMPT = "a question of your own is 'type: judge' or 'type: geval'"


class MetricSettings(Model):
    """The settings that every metric has."""

    kind: ClassVar[MetricKind] = "standard"
    """The family of metrics that reports name."""
    takes_base_dir: ClassVar[bool] = False
    """Whether the evaluator imports Python objects of the user."""
    evaluator_modules: ClassVar[tuple[str, ...]] = ()
    """The modules in `holodeck.lib.evaluators` that hold the family's evaluators. The evaluator of
    a metric is the class there whose `metric` is its `evaluator_name`."""
    not_options: ClassVar[frozenset[str]] = frozenset({"type", "metric"})
    """Fields that select the metric or its judge; all others are options of the evaluator."""

    threshold: Ratio | None = None
    """Score to reach, 0 to 1. Without one, the metric's own verdict counts, if it has a verdict."""
    name: NonBlank | None = None
    """The metric's name in reports, such as for two metrics of one kind."""
    enabled: bool = True
    """Whether the metric is computed."""
    required: bool = True
    """Whether the case fails if the metric does not pass; `false` only reports the metric."""
    fail_on_error: bool = False
    """What an error in the metric means: by default the case stays undecided (exit code 4); `true`
    makes it a failure (exit code 1). A metric with an error never passes."""
    retry_on_failure: Annotated[int, Field(ge=1, le=3)] | None = None
    """How many times a metric that ends in an error is retried."""
    timeout_ms: Milliseconds | None = None
    """Time limit of the metric in milliseconds; 60000 by default."""

    @model_validator(mode="after")
    def _check_fail_on_error(self) -> "MetricSettings":
        if self.fail_on_error and not self.required:
            raise ValueError("'required: false' never fails a case; remove 'fail_on_error'")
        return self

    @property
    def evaluator_name(self) -> str:
        """The `metric` attribute of the evaluator class."""
        raise TypeError(f"{type(self).__name__} is not a metric by itself")

    @property
    def label(self) -> str:
        """The metric's name in reports."""
        return self.name or self.evaluator_name

    @property
    def user_code(self) -> str | None:
        """The user's `module:callable` that computes the metric; None for built-in metrics."""
        return None

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        """Require `type` where it selects the metric: only in Python may it be omitted."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        if "type" in cls.model_fields and "standard" not in get_args(
            cls.model_fields["type"].annotation
        ):
            own = handler.resolve_ref_schema(schema)
            own["properties"]["type"].pop("default")
            own["required"] = ["type", *own.get("required", ())]
        return schema

    @property
    def python_targets(self) -> "Mapping[tuple[str, ...], str]":
        """The user's objects, as `module:object`, by their keys in the metric."""
        return {}

    def options(self) -> dict[str, Any]:
        """Return the metric's own settings by their keys in agent.yaml."""
        return {key: getattr(self, name) for key, name in _option_fields(type(self))}


@cache
def _option_fields(metric: type[MetricSettings]) -> tuple[tuple[str, str], ...]:
    """Return the YAML key and the name of each option. Cached: every case may have metrics."""
    excluded = MetricSettings.model_fields.keys() | metric.not_options
    fields = metric.model_fields
    return tuple((fields[name].alias or name, name) for name in fields if name not in excluded)


class JudgedMetric(MetricSettings):
    """The settings of a metric that a judge scores."""

    not_options: ClassVar[frozenset[str]] = frozenset({"type", "metric", "model", "judge_trust"})

    threshold: Ratio = 0.5
    """Score to reach, 0 to 1."""
    model: LLMProvider | None = None
    """The judge. Default: the model of `evaluations`, then the agent's own."""
    judge_trust: TrustSetting | None = None
    """What a judge means that no check with labels has shown to be good enough: an inconclusive
    verdict (`require`), a note in the report (`warn`) or nothing (`off`); or a mapping of `mode`,
    `min_kappa` and `max_false_passes`. If `execution` or the command line says something, too, the
    stricter one counts."""
