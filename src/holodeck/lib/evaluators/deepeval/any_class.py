"""Any metric class of DeepEval for one response, or one of the user: `class:`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.class_arguments import class_arguments, takes_argument
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.base import DeepEvalBaseEvaluator
from holodeck.lib.evaluators.deepeval.cases import unseen_calls
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.judging.judge import JsonObject
from holodeck.lib.support.text import describe, did_you_mean_or_list
from holodeck.lib.user_code.registry import load_attribute
from holodeck.models.metrics.deepeval import DeepEvalClassMetric
from holodeck.models.test_case import ExpectedTool

_SET_BY_US = {
    "model": "write 'model' beside 'class'",
    "threshold": "write 'threshold' beside 'class'",
    "async_mode": "remove it",
    "verbose_mode": "remove it",
    "eval_mode": "remove it",
    "system_one_model": "remove it",
}
_INPUTS = {
    "input": EvalParam.INPUT,
    "actual_output": EvalParam.ACTUAL_OUTPUT,
    "expected_output": EvalParam.EXPECTED_OUTPUT,
    "context": EvalParam.CONTEXT,
    "retrieval_context": EvalParam.RETRIEVAL_CONTEXT,
    "tools_called": EvalParam.TOOLS_CALLED,
    "expected_tools": EvalParam.EXPECTED_TOOLS,
}
"""The parameters of DeepEval's test cases that a run records."""
_PREFIX = "deepeval.metrics."
_IMAGES = f"{_PREFIX}multimodal_metrics."
"""The package of DeepEval's classes that need images without declaring it."""


class AnyClassEvaluator(DeepEvalBaseEvaluator):
    """Computes a metric class of DeepEval or of the user.

    The inputs are those that the class names as its required parameters; whatever else the case has
    is given, too. A score of 1 is good, and `is_successful()` must agree.

    Args:
        base_dir: Where the modules of the user are looked up first.
        options: As for `JudgedEvaluator`.
    """

    settings: DeepEvalClassMetric
    metric = "deepeval class"
    uses = ("judge", "base_dir")
    PARAM_SPEC = ParamSpec(required=frozenset(), optional=frozenset({*_INPUTS.values()}))

    def __init__(self, *, base_dir: Path | None = None, **options: Any) -> None:
        self._base_dir = base_dir
        super().__init__(**options)

    def _configure(self) -> None:
        super()._configure()
        folder, args = self._base_dir, self.settings.args
        self._class = find_class(self.settings.class_, folder)
        self._args = class_arguments(self._class, args, ours=_SET_BY_US, base_dir=folder)
        self._required = _required_inputs(self._instance())

    @property
    def name(self) -> str:
        return self._class.__name__

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
        return {**self._args, **taken}

    def _instance(self) -> Any:
        """Return the metric, for its declarations only."""
        try:
            return self._measurement(with_judge=False).metric
        except Exception as error:
            raise ConfigError("args", f"{self.name} refuses them: {describe(error)}") from error

    def _measurement(self, *, with_judge: bool) -> adapter.Measurement:
        return adapter.Measurement(
            self._class,
            self.judge if self.asks_judge and with_judge else None,
            self._options(),
            takes_judge=self.asks_judge,
            takes_text=True,
        )

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        case = self._test_case(kwargs)
        measurement = self._measurement(with_judge=True)
        await measurement.run(case, lambda _: None)
        return self._result_of(measurement.metric, case)

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        case = super()._test_case({**dict.fromkeys(self.PARAM_SPEC.optional), **kwargs})
        if kwargs.get(EvalParam.TOOLS_CALLED) is None:
            case.tools_called = unseen_calls()
        expected = kwargs.get(EvalParam.EXPECTED_TOOLS)
        if expected is not None:
            case.expected_tools = _expected_calls(expected)
        return case

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:
        """The class checks the answers itself."""

    def _result_of(self, metric: Any, case: Any) -> dict[str, Any]:
        if getattr(metric, "error", None):
            raise EvaluationError(f"{self.name}: {metric.error}")
        result = super()._result_of(metric, case)
        succeeded = metric.is_successful()
        if succeeded and not result["passed"]:
            raise EvaluationError(
                f"{self.name} says that the score {metric.score:g} is a success, and it does not"
                " reach the threshold; if a lower score is better, write 'type: code'"
            )
        return {**result, "passed": bool(result["passed"] and succeeded is not False)}


def find_class(name: str, base_dir: Path | None = None) -> type[Any]:
    """Return the metric class. Raises ConfigError."""
    metrics = adapter.library().metrics
    known = {
        key: value
        for key, value in vars(metrics).items()
        if isinstance(value, type) and issubclass(value, metrics.BaseMetric)
    }
    short = name.removeprefix(_PREFIX)
    if ":" not in name and short not in known:
        hint = did_you_mean_or_list(short, known)
        raise ConfigError("class", f"DeepEval has no metric class {short!r} for a response{hint}")
    value = load_attribute(name, base_dir, location="class") if ":" in name else known[short]
    if not (isinstance(value, type) and issubclass(value, metrics.BaseMetric)):
        raise ConfigError("class", f"{name!r} does not derive from DeepEval's BaseMetric")
    return value


def _required_inputs(metric: Any) -> frozenset[EvalParam]:
    """Return the inputs that the metric requires. Raises ConfigError if a run has none of them."""
    declared: set[str] = set()
    for name in ("_required_params", "_required_test_case_params", "evaluation_params"):
        params = getattr(metric, name, None)
        if isinstance(params, list | tuple):
            declared |= {str(getattr(param, "value", param)) for param in params}
    for name in ("mcp_servers", "trace"):
        if getattr(metric, f"_requires_{name}", False) or getattr(
            metric, f"requires_{name}", False
        ):
            declared.add(name)
    if any(base.__module__.startswith(_IMAGES) for base in type(metric).__mro__):
        declared.add("images in the texts")
    unseen = sorted(declared - _INPUTS.keys())
    if unseen:
        raise ConfigError(
            "class",
            f"{type(metric).__name__} reads {', '.join(unseen)}, which it does not get here;"
            " write 'metric:' with a name, or 'type: code'",
        )
    return frozenset(_INPUTS[name] for name in declared)


def _expected_calls(expected: Any) -> list[Any]:
    make = adapter.library().cases.ToolCall
    return [
        make(name=tool.name, input_parameters=dict(tool.args) if tool.args else None)
        if isinstance(tool, ExpectedTool)
        else make(name=tool)
        for tool in expected
    ]
