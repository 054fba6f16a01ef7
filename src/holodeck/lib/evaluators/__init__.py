"""Evaluators, which compute metrics: where those of each family are."""

from collections.abc import Mapping

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "text": ("holodeck.lib.evaluators.text_metrics", "holodeck.lib.evaluators.numeric"),
    "similarity": ("holodeck.lib.evaluators.nlp_metrics",),
    "observation": ("holodeck.lib.evaluators.observation_metrics",),
    "json_schema": ("holodeck.lib.evaluators.json_schema",),
    "judge": ("holodeck.lib.evaluators.judge_metric",),
    "azure": (
        "holodeck.lib.evaluators.azure_adapter",
        "holodeck.lib.evaluators.azure_ai",
        "holodeck.lib.evaluators.azure_project",
        "holodeck.lib.evaluators.azure_class",
    ),
    "deepeval": (
        "holodeck.lib.evaluators.deepeval.rag",
        "holodeck.lib.evaluators.deepeval.response",
        "holodeck.lib.evaluators.deepeval.geval",
        "holodeck.lib.evaluators.deepeval.agentic",
        "holodeck.lib.evaluators.deepeval.any_class",
    ),
}
"""Family of a metric → the modules of its evaluators, which are imported one after the other, and
of the code that they share: a check of a judge goes stale with any of them."""
