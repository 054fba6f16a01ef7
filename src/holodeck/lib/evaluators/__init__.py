"""Evaluators, which compute metrics: where those of each family are."""

from collections.abc import Mapping

_HERE = "holodeck.lib.evaluators"

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "text": (f"{_HERE}.text_metrics",),
    "similarity": (f"{_HERE}.nlp_metrics",),
    "observation": (f"{_HERE}.observation_metrics",),
    "json_schema": (f"{_HERE}.json_schema",),
    "judge": (f"{_HERE}.judge_metric",),
    "azure": (f"{_HERE}.azure_ai", f"{_HERE}.azure", f"{_HERE}.azure_class"),
    "deepeval": (f"{_HERE}.deepeval",),
}
"""Family of a metric → its modules; a package stands for all modules in it."""
