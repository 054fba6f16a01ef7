"""Every built-in metric and the evaluator class that computes it."""

from holodeck.lib.evaluators import FAMILIES
from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.evaluators.build import evaluators_of

EVALUATORS: dict[str, type[BaseEvaluator]] = {
    name: evaluator
    for family in FAMILIES
    for names in evaluators_of(family)
    for name, evaluator in names.items()
    if not name.endswith(" class")
}
