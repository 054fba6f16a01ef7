"""Any metric class of DeepEval, or one of the user that derives from it: `class:`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Unpack

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.class_arguments import class_arguments, takes_argument
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.base import (
    ONE_IS_GOOD,
    DeepEvalBaseEvaluator,
    DeepEvalOptions,
)
from holodeck.lib.evaluators.deepeval.cases import (
    to_texts,
    to_turn,
    trace_of,
    turns_of,
    turns_with_passages,
    unseen_calls,
)
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.exceptions import describe
from holodeck.lib.judging.judge import JsonObject
from holodeck.lib.registry import load_attribute
from holodeck.lib.suggestions import did_you_mean_or_list
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
    "expected_outcome": EvalParam.EXPECTED_OUTPUT,
    "context": EvalParam.CONTEXT,
    "retrieval_context": EvalParam.RETRIEVAL_CONTEXT,
    "tools_called": EvalParam.TOOLS_CALLED,
    "expected_tools": EvalParam.EXPECTED_TOOLS,
    "role": EvalParam.EXCHANGES,
    "content": EvalParam.EXCHANGES,
}
"""The parameters of DeepEval's test cases that a run records."""
_PREFIX = "deepeval.metrics."
_MEDIA = {
    "voice": "audio",
    "audio_glitch": "audio",
    "transcription_accuracy": "audio",
    "multimodal_metrics": "images in the texts",
}
"""Package of DeepEval's metrics → what its classes need without declaring it."""


class AnyClassEvaluator(DeepEvalBaseEvaluator):
    """Computes a metric class of DeepEval or of the user.

    The inputs are those that the class names as its required parameters; whatever else the case has
    is given, too. If a lower score is better by the class's own `is_successful()`, the score is 1
    minus that of the class.

    Args:
        class_name: The class in `deepeval.metrics`, or `module:Class`.
        args: The arguments of the class.
        base_dir: Where the modules of the user are looked up first.
    """

    metric = "class"
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset(),
        optional=frozenset({*_INPUTS.values()}),
        uses_context=True,
        uses_retrieval_context=True,
    )

    def __init__(
        self,
        *,
        class_name: str,
        args: Mapping[str, Any],
        base_dir: Path | None = None,
        **options: Unpack[DeepEvalOptions],
    ) -> None:
        super().__init__(**options)
        self._class = find_class(class_name, base_dir)
        self._args = class_arguments(self._class, args, ours=_SET_BY_US, base_dir=base_dir)
        self._lower_is_better = False
        probe = self._instance()
        self._is_conversational = isinstance(
            probe, adapter.library().metrics.BaseConversationalMetric
        )
        self._lower_is_better = _lower_is_better(probe)
        self._required = _required_inputs(probe)

    @property
    def name(self) -> str:
        return self._class.__name__

    @property
    def asks_judge(self) -> bool:
        return takes_argument(self._class, "model")

    @property
    def scale(self) -> str:  # type: ignore[override]  # depends on the class
        return ONE_IS_GOOD if self._lower_is_better else "0-1"

    def required_params(self) -> frozenset[EvalParam]:
        return self._required

    def _options(self) -> dict[str, Any]:
        threshold = round(1 - self.threshold, 12) if self._lower_is_better else self.threshold
        ours = {
            "threshold": threshold,
            "async_mode": True,
            "verbose_mode": False,
            "eval_mode": "llm",
        }
        given = {name: value for name, value in ours.items() if takes_argument(self._class, name)}
        return {**self._args, **given}

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
        case = self._conversation(kwargs) if self._is_conversational else self._test_case(kwargs)
        measurement = self._measurement(with_judge=True)
        if getattr(measurement.metric, "requires_trace", False):
            case._trace_dict = trace_of(kwargs[EvalParam.EXCHANGES])  # noqa: SLF001 - its only place
        await measurement.run(case, lambda _: None)
        return self._result(measurement.metric, case)

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        case = super()._test_case({**dict.fromkeys(self.PARAM_SPEC.optional), **kwargs})
        if kwargs.get(EvalParam.TOOLS_CALLED) is None:
            case.tools_called = unseen_calls()
        expected = kwargs.get(EvalParam.EXPECTED_TOOLS)
        if expected is not None:
            case.expected_tools = _expected_calls(expected)
        return case

    def _conversation(self, kwargs: Mapping[str, Any]) -> Any:
        exchanges = kwargs[EvalParam.EXCHANGES]
        if not exchanges:
            raise EvaluationError(f"{self.name} needs a message of the agent")
        passages = kwargs.get(EvalParam.RETRIEVAL_CONTEXT)
        turns = kwargs.get(EvalParam.TURNS) or turns_of(exchanges)
        expected = kwargs.get(EvalParam.EXPECTED_OUTPUT)
        return adapter.library().cases.ConversationalTestCase(
            turns=turns_with_passages(exchanges, passages)
            if passages
            else [to_turn(one, mark_unseen=True) for one in turns],
            expected_outcome=None if expected is None else adapter.clean_text(expected),
            context=to_texts(kwargs.get(EvalParam.CONTEXT)),
        )

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:
        """The class checks the answers itself."""

    def _result(self, metric: Any, case: Any) -> dict[str, Any]:
        raw = metric.score
        if getattr(metric, "error", None):
            raise EvaluationError(f"{self.name}: {metric.error}")
        if self._lower_is_better and isinstance(raw, int | float):
            metric.score = round(1 - raw, 12)
        result = super()._result(metric, case)
        metric.score = raw
        succeeded = metric.is_successful()
        if succeeded and not result["passed"]:
            raise EvaluationError(
                f"{self.name} says that the score {raw:g} is a success, and it does not reach the"
                f" threshold; if a lower score is better, is_successful() must compare the score"
                " with the threshold"
            )
        if self._lower_is_better:
            result |= {"raw_score": float(raw), "raw_scale": "0-1, 0 is good"}
        return {**result, "passed": bool(result["passed"] and succeeded is not False)}


def find_class(name: str, base_dir: Path | None = None) -> type[Any]:
    """Return the metric class. Raises ConfigError."""
    metrics = adapter.library().metrics
    bases = (metrics.BaseMetric, metrics.BaseConversationalMetric)
    if ":" in name:
        found = load_attribute(name, base_dir, location="class")
        if not (isinstance(found, type) and issubclass(found, bases)):
            raise ConfigError(
                "class", f"{name!r} does not derive from DeepEval's BaseMetric or"
                " BaseConversationalMetric",
            )  # fmt: skip
        return found
    known = {
        one: value
        for one, value in vars(metrics).items()
        if isinstance(value, type) and issubclass(value, bases) and value not in bases
    }
    short = name.removeprefix(_PREFIX)
    if short not in known:
        hint = did_you_mean_or_list(short, known)
        raise ConfigError("class", f"DeepEval has no metric class {short!r}{hint}")
    return known[short]


def _required_inputs(metric: Any) -> frozenset[EvalParam]:
    """Return the inputs that the metric requires. Raises ConfigError if a run has none of them."""
    declared: set[str] = set()
    for name in ("_required_params", "_required_test_case_params", "evaluation_params"):
        found = getattr(metric, name, None)
        if isinstance(found, list | tuple):
            declared |= {_name(one) for one in found if type(one).__name__.endswith("TurnParams")}
    if getattr(metric, "dag", None) is not None:
        declared |= adapter.dag_params(metric.dag)
    if getattr(metric, "_requires_chatbot_role", False):
        declared.add("chatbot_role")
    if getattr(metric, "_requires_mcp_servers", False):
        declared.add("mcp_servers")
    unseen = sorted((declared - _INPUTS.keys()) | _media_of(type(metric)))
    if "mcp_servers" in unseen:
        raise ConfigError(
            "class",
            f"{type(metric).__name__} reads MCP servers, which a class does not get; write 'metric:"
            " mcp_use', 'multi_turn_mcp_use' or 'mcp_task_completion' instead of 'class'",
        )
    if unseen:
        raise ConfigError(
            "class",
            f"{type(metric).__name__} reads {', '.join(unseen)}, which a run does not record",
        )
    required = {_INPUTS[one] for one in declared}
    if getattr(metric, "requires_trace", False):
        required |= {EvalParam.TOOLS_CALLED, EvalParam.EXCHANGES}
    if isinstance(metric, adapter.library().metrics.BaseConversationalMetric):
        required.add(EvalParam.EXCHANGES)
    return frozenset(required)


def _media_of(metric_class: type[Any]) -> set[str]:
    """Return what a class of DeepEval, or one that derives from it, reads besides text."""
    modules = (one.__module__ for one in metric_class.__mro__)
    packages = [one.removeprefix(_PREFIX).split(".")[0] for one in modules if _PREFIX in one]
    return {_MEDIA[package] for package in packages if package in _MEDIA}


def _name(param: Any) -> str:
    return str(getattr(param, "value", param))


def _lower_is_better(metric: Any) -> bool:
    """Ask the metric itself: is 0 a success and 1 none? The metric is of no further use."""
    if getattr(metric, "threshold", None) is None:
        return False
    metric.error, metric.threshold = None, 0.5
    verdicts = []
    for score in (0.0, 1.0):
        metric.score = score
        try:
            verdicts.append(metric.is_successful())
        except Exception:  # noqa: BLE001 - code of the user, which may need more than a score
            return False
    return verdicts == [True, False]


def _expected_calls(expected: Any) -> list[Any]:
    make = adapter.library().cases.ToolCall
    return [
        make(name=one.name, input_parameters=dict(one.args) if one.args else None)
        if isinstance(one, ExpectedTool)
        else make(name=one)
        for one in expected
    ]
