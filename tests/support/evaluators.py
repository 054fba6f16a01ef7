"""Every built-in metric and the evaluator class that computes it."""

from pkgutil import resolve_name

from holodeck.lib import evaluators
from holodeck.lib.evaluators.base import BaseEvaluator

EVALUATORS: dict[str, type[BaseEvaluator]] = {
    name: resolve_name(target)
    for name, target in evaluators.EVALUATORS.items()
    if not name.endswith(" class")
}
