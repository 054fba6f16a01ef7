"""Any metric class of DeepEval for a response, or a class of the user: `class:`."""

from dataclasses import replace
from typing import Any

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import Score
from holodeck.lib.evaluators.class_evaluator import ClassEvaluator, check_arguments, takes_argument
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.base import DeepEvalBaseEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam, takes
from holodeck.lib.support.text import describe, did_you_mean_or_list
from holodeck.lib.user_code.code_root import CodeFolders
from holodeck.lib.user_code.registry import load_attribute
from holodeck.models.metrics.deepeval import DeepEvalClassMetric

_SET_BY_US = {
    "model": "write 'model' beside 'class'",
    "threshold": "write 'threshold' beside 'class'",
    **dict.fromkeys(("async_mode", "verbose_mode", "eval_mode", "system_one_model"), "remove it"),
}
_INPUTS = ("input", "actual_output", "expected_output", "context", "retrieval_context")
"""The parameters of DeepEval's test cases that a class gets."""
_PREFIX = "deepeval.metrics."
_IMAGES = f"{_PREFIX}multimodal_metrics."
"""The package of DeepEval's classes that need images without declaring it."""


class AnyClassEvaluator(ClassEvaluator, DeepEvalBaseEvaluator, metric="deepeval class"):
    """Computes a metric class of DeepEval or of the user.

    The inputs are those that the class names as its required parameters; whatever else the case has
    is given, too. A score of 1 is good, and `is_successful()` must agree.
    """

    settings: DeepEvalClassMetric
    PARAM_SPEC = takes(optional=_INPUTS)

    def _configure(self) -> None:
        super()._configure()
        self._class = _find_class(self.settings.class_, self._base_dir)
        check_arguments(self._class, self.settings.args, _SET_BY_US)
        try:
            metric = self._measurement(with_judge=False).metric
        except Exception as error:
            raise ConfigError("args", f"{self.name} refuses them: {describe(error)}") from error
        self._required = _required_inputs(metric)

    @property
    def asks_judge(self) -> bool:
        return takes_argument(self._class, "model")

    def required_params(self) -> frozenset[EvalParam]:
        return self._required

    def _options(self) -> dict[str, Any]:
        ours = {
            "threshold": self.threshold,
            "async_mode": True,
            "verbose_mode": False,
            "eval_mode": "llm",
        }
        taken = {name: value for name, value in ours.items() if takes_argument(self._class, name)}
        return {**self.settings.args, **taken}

    def _measurement(self, *, with_judge: bool) -> adapter.Measurement:
        return adapter.Measurement(
            self._class,
            self.judge if self.asks_judge and with_judge else None,
            self._options(),
            takes_judge=self.asks_judge,
            takes_text=True,
        )

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        case = self._test_case(kwargs)
        measurement = self._measurement(with_judge=True)
        await measurement.run(case, lambda _: None)
        return self._score_of(measurement.metric, case)

    def _score_of(self, metric: Any, case: Any) -> Score:
        if getattr(metric, "error", None):
            raise EvaluationError(f"{self.name}: {metric.error}")
        score = self._decide(super()._score_of(metric, case))
        succeeded = metric.is_successful()
        if succeeded and not score.passed:
            raise EvaluationError(
                f"{self.name} says that the score {metric.score:g} is a success, and it does not"
                " reach the threshold; if a lower score is better, write 'type: code'"
            )
        return replace(score, passed=bool(score.passed and succeeded is not False))


def _find_class(name: str, base_dir: CodeFolders | None) -> type[Any]:
    """Return the metric class. Raises ConfigError."""
    metrics = adapter.library().metrics
    if ":" in name:
        value = load_attribute(name, base_dir, location="class")
        if isinstance(value, type) and issubclass(value, metrics.BaseMetric):
            return value
        raise ConfigError("class", f"{name!r} does not derive from DeepEval's BaseMetric")
    classes = {key: value for key, value in vars(metrics).items() if isinstance(value, type)}
    known = {key: value for key, value in classes.items() if issubclass(value, metrics.BaseMetric)}
    short = name.removeprefix(_PREFIX)
    if short not in known:
        hint = did_you_mean_or_list(short, known)
        raise ConfigError("class", f"DeepEval has no metric class {short!r} for a response{hint}")
    return known[short]


def _required_inputs(metric: Any) -> frozenset[EvalParam]:
    """Return the inputs that the metric requires. Raises ConfigError if a run has none of them."""
    declared: set[str] = set()
    for name in ("_required_params", "_required_test_case_params", "evaluation_params"):
        params = getattr(metric, name, None)
        if isinstance(params, list | tuple):
            declared |= {str(getattr(param, "value", param)) for param in params}
    for name in ("mcp_servers", "trace"):
        if any(getattr(metric, f"{start}_{name}", False) for start in ("_requires", "requires")):
            declared.add(name)
    if any(base.__module__.startswith(_IMAGES) for base in type(metric).__mro__):
        declared.add("images in the texts")
    unseen = sorted(declared.difference(_INPUTS))
    if unseen:
        raise ConfigError(
            "class",
            f"{type(metric).__name__} reads {', '.join(unseen)}, which it does not get here;"
            " write 'metric:' with a name, or 'type: code'",
        )
    return frozenset(map(EvalParam, declared))
