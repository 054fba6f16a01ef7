"""Every built-in metric and the evaluator class that computes it."""

from importlib import import_module
from itertools import chain

from holodeck.lib.evaluators import FAMILIES
from holodeck.lib.evaluators.base import BUILT_IN, BaseEvaluator

for _module in chain.from_iterable(FAMILIES.values()):
    import_module(_module)
EVALUATORS: dict[str, type[BaseEvaluator]] = {
    name: evaluator
    for name, evaluator in BUILT_IN.items()
    if not name.endswith(" class") and evaluator.__module__.startswith("holodeck.")
}
