"""Evaluators, which compute metrics: where those of each family are."""

from collections.abc import Mapping

_HERE = "holodeck.lib.evaluators"

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "text": (f"{_HERE}.text_metrics",),
    "similarity": (f"{_HERE}.nlp_metrics",),
    "observation": (f"{_HERE}.observation_metrics",),
    "json_schema": (f"{_HERE}.json_schema",),
    "judge": (f"{_HERE}.judge_metric",),
    "azure": tuple(f"{_HERE}.azure_{part}" for part in ("adapter", "ai", "project", "class")),
    "deepeval": (
        f"{_HERE}.deepeval.answers",
        f"{_HERE}.deepeval.geval",
        f"{_HERE}.deepeval.agentic",
        f"{_HERE}.deepeval.any_class",
    ),
}
"""Family of a metric → the modules of its evaluators, which are imported one after the other."""
