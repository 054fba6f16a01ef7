"""Evaluators, which compute metrics: where those of each family are."""

from collections.abc import Mapping

_MODULES = {
    "text": ("text_metrics",),
    "similarity": ("nlp_metrics",),
    "observation": ("observation_metrics",),
    "json_schema": ("json_schema",),
    "judge": ("judge_metric",),
    "azure": ("class_evaluator", "azure_adapter", "azure_ai", "azure_project"),
    "deepeval": (
        "class_evaluator",
        "deepeval.rag",
        "deepeval.geval",
        "deepeval.agentic",
        "deepeval.any_class",
    ),
}

FAMILIES: Mapping[str, tuple[str, ...]] = {
    family: tuple(f"{__name__}.{module}" for module in modules)
    for family, modules in _MODULES.items()
}
"""Family of a metric → the modules of its evaluators, which are imported one after the other, and
of the code that they share: a check of a judge goes stale with any of them."""
