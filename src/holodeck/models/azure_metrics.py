"""Metrics that Azure AI Evaluation computes with the help of a judge."""

from typing import Literal, get_args

from holodeck.models.metric import JudgedMetric, MetricKind

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


class AzureMetric(JudgedMetric):
    """A metric of Azure AI Evaluation; its 1 to 5 becomes 0 to 1 as (raw - 1) / 4."""

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
