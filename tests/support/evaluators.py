"""Every built-in metric and the evaluator class that computes it."""

from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.evaluators.build import evaluator_class
from holodeck.models.evaluation import BUILT_IN, BY_TYPE, RAGMetricType
from holodeck.models.judged_metrics import DEEPEVAL_METRICS

_TYPED = {
    **{name.value: {"type": "rag", "metric_type": name} for name in RAGMetricType},
    **{name: {"type": "deepeval", "metric": name} for name in DEEPEVAL_METRICS},
    "geval": {"type": "geval"},
    "judge": {"type": "judge"},
}

EVALUATORS: dict[str, type[BaseEvaluator]] = {
    **{
        name: evaluator_class(model.model_construct(metric=name))
        for name, model in BUILT_IN.items()
    },
    **{
        name: evaluator_class(BY_TYPE[keys["type"]][0].model_construct(**keys))
        for name, keys in _TYPED.items()
    },
}
