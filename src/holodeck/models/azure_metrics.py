"""Metrics of Azure AI Evaluation: most ask a judge, those of safety ask a project in Azure."""

from typing import Literal, get_args

from holodeck.models.base import Model, NonBlank, Ratio
from holodeck.models.metric import JudgedMetric, MetricKind, MetricSettings

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

SafetyName = Literal["safety", "violence", "sexual", "self_harm", "hate_unfairness"]
SAFETY_METRICS: tuple[str, ...] = get_args(SafetyName)


class AzureMetric(JudgedMetric):
    """A metric of Azure AI Evaluation; its 1 to 5 becomes 0 to 1 as (raw - 1) / 4, and
    `task_adherence` is 0 or 1."""

    type: Literal["standard", "azure"] = "azure"
    """May be left out."""
    metric: AzureName
    """Which one."""

    @property
    def kind(self) -> MetricKind:
        """What its rows in reports say about where it comes from."""
        return "azure"

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return self.metric


class AzureProject(Model):
    """A project of a hub in Azure AI Foundry."""

    subscription_id: NonBlank
    """The subscription."""
    resource_group_name: NonBlank
    """The resource group."""
    project_name: NonBlank
    """The project."""


class AzureSafetyMetric(MetricSettings):
    """How harmless the answer is, by a project in Azure: 1 - severity / 7."""

    type: Literal["standard", "azure"] = "azure"
    """May be left out."""
    metric: SafetyName
    """Which harm; `safety` is the worst of the four."""
    threshold: Ratio = 0.5
    """Score to reach, 0 to 1; 0.5 allows a severity of 3 (low)."""
    azure_ai_project: NonBlank | AzureProject | None = None
    """The project: its URL, or the names of one that belongs to a hub. Needed; the one who runs the
    tests must be signed in to Azure."""

    @property
    def kind(self) -> MetricKind:
        """What its rows in reports say about where it comes from."""
        return "azure"

    @property
    def row(self) -> str:
        """Its name in the table of metrics."""
        return self.metric
