"""Metrics of Azure AI Evaluation: scored by a judge, or by a project in Azure."""

from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeGuard

from pydantic import Field, field_validator

from holodeck.models.base import Model, NonBlank, Ratio, ServerAddress
from holodeck.models.metrics.base import CUSTOM_PROMPT, ClassMetric, JudgedMetric, MetricSettings

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


_WORST, _BEST = 1, 5
_SCALE = f"{_WORST}-{_BEST}"
"""The scale of most metrics of Azure AI Evaluation."""


class _OnScale(NamedTuple):
    """A threshold that is written on the scale of 1 to 5."""

    value: float


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


class AzureMetric(JudgedMetric):
    """A metric of Azure AI Evaluation. Its scale of 1 to 5 becomes 0 to 1 as (raw - 1) / 4;
    `task_adherence` is 0 or 1."""

    not_supported_yet: ClassVar = {"custom_prompt": CUSTOM_PROMPT}
    family: ClassVar = "azure"

    type: Literal["standard", "azure"] = "azure"
    """May be omitted."""
    metric: AzureName
    threshold: Annotated[Ratio, Field(json_schema_extra={"maximum": _BEST})] = 0.5
    """Score to reach, 0 to 1; 1 to 5 with `scale: 1-5`."""
    scale: Literal["1-5", "0-1", 5, 1] | None = None
    """The scale of `threshold`: with `1-5` (or 5), a threshold of 4 becomes (4 - 1) / 4 = 0.75."""

    @classmethod
    def _prepare(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Mark a threshold on the scale; its validator does the rest, and hides no other problem.

        The scale is dropped, because a valid model has a threshold from 0 to 1.
        """
        is_on_scale = data.get("scale") in (_SCALE, _BEST)
        if not is_on_scale or data.get("metric") == "task_adherence":
            return data
        rest = {key: value for key, value in data.items() if key != "scale"}
        threshold = data.get("threshold")
        return {**rest, "threshold": _OnScale(threshold)} if _is_number(threshold) else rest

    @field_validator("threshold", mode="before")
    @classmethod
    def _translate_threshold(cls, value: Any) -> Any:
        if isinstance(value, _OnScale):
            [written] = value
            if not _WORST <= written <= _BEST:
                raise ValueError(
                    f"found {written:g}; expected {_WORST} to {_BEST}, because 'scale' is"
                    f" {_SCALE}; a threshold from 0 to 1 needs no 'scale'"
                )
            return round((written - _WORST) / (_BEST - _WORST), 12)
        if _is_number(value) and 1 < value <= _BEST:
            raise ValueError(
                f"found {value:g}; expected 0 to 1; for a threshold on the scale of {_WORST} to"
                f" {_BEST}, add 'scale: {_SCALE}'"
            )
        return value

    @field_validator("scale")
    @classmethod
    def _check_scale(cls, value: Any) -> Any:
        if value in (_SCALE, _BEST):
            raise ValueError("task_adherence is 0 or 1; remove this key")
        return value


class AzureProject(Model):
    """A hub-based project in Azure AI Foundry."""

    subscription_id: NonBlank
    """The subscription."""
    resource_group_name: NonBlank
    """The resource group."""
    project_name: NonBlank
    """The project."""


class AzureSafetyMetric(MetricSettings):
    """How harmless the response is, scored by a project in Azure: 1 - severity / 7.

    `safety` is the worst of violence, sexual, self-harm and hate. The metrics from
    `indirect_attack` on are 1 (good) or 0.
    """

    not_supported_yet: ClassVar = {"custom_prompt": CUSTOM_PROMPT}
    family: ClassVar = "azure"

    type: Literal["standard", "azure"] = "azure"
    """May be omitted."""
    metric: SafetyName
    threshold: Ratio = 0.5
    """Score to reach, 0 to 1; 0.5 allows a severity of 3 (low)."""
    azure_ai_project: ServerAddress | AzureProject | None = None
    """Required: the URL of the project, or the names of a hub-based one. Needs a sign-in to
    Azure."""


class AzureClassMetric(ClassMetric):
    """A class whose objects are called with texts (`query`, `response`, `context`, `ground_truth`)
    and return a mapping: your own, or one of Azure AI Evaluation without a name under `metric:`."""

    family: ClassVar = "azure"

    type: Literal["azure"] = "azure"
    """A metric of Azure AI Evaluation."""
    scale: Annotated[list[float], Field(min_length=2, max_length=2)]
    """The worst and the best score of the class, such as `[1, 5]`, or `[7, 0]` if less is
    better."""
    score_key: NonBlank | None = None
    """The key of the score in the class's result; required if there are several."""

    @field_validator("scale")
    @classmethod
    def _check_scale(cls, value: list[float]) -> list[float]:
        if value[0] == value[1]:
            raise ValueError("the worst and the best score are equal; write for example [1, 5]")
        return value
