"""Builds the evaluator of a configured metric, and knows beforehand what it needs."""

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.evaluators import FAMILIES
from holodeck.lib.evaluators.base import (
    BUILT_IN,
    METRIC_S,
    BaseEvaluator,
    RetryConfig,
    ScoredEvaluator,
)
from holodeck.lib.evaluators.observation_metrics import CustomEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam
from holodeck.lib.judging.judge import Judge
from holodeck.lib.user_code.code_root import CodeFolders, importing_grader
from holodeck.lib.user_code.registry import load_callable
from holodeck.models.agent import Agent
from holodeck.models.llm import LLMProvider
from holodeck.models.metrics.base import JudgedMetric, MetricSettings
from holodeck.models.metrics.text import CodeMetric, ComparingMetric, PassFailMetric
from holodeck.models.test_case import TestCaseModel, TurnModel

if TYPE_CHECKING:
    from holodeck.lib.evaluators.grader_process import GraderProcess
    from holodeck.lib.local_models.runtime import EmbeddingModel


_DEFAULT_RETRIES = RetryConfig()


def build_evaluator(
    metric: MetricSettings,
    base_dir: CodeFolders | None = None,
    *,
    location: str = "evaluations",
    judge: Judge | None = None,
    embeddings: "Callable[[], EmbeddingModel] | None" = None,
    graders: "Callable[[], GraderProcess] | None" = None,
) -> BaseEvaluator:
    """Return the evaluator of a configured metric. Raises ConfigError.

    The module of a `module:callable` is looked up in `base_dir` first; importing it runs the user's
    code. A judged metric without a `judge` can be built, but not evaluated. `embeddings` loads the
    model for `semantic_similarity`; by default it is the built-in model. Graders that may run
    elsewhere do so in the process that `graders` returns; by default in this process.
    """
    retry_config, retries = _DEFAULT_RETRIES, metric.retry_on_failure
    if retries is not None:
        retry_config = RetryConfig(max_retries=retries, every_error=True)
    options: dict[str, Any] = {
        "timeout": METRIC_S if metric.timeout_ms is None else metric.timeout_ms / 1000,
        "retry_config": retry_config,
    }
    if metric.user_code is not None:
        with importing_grader():
            target = load_callable(metric.user_code, base_dir, location=location)
        if needs_judge(metric):
            _require_judge_parameter(target, metric.user_code, location)
            options |= {"asks_judge": True, "judge": judge}
        elif isinstance(target, type) and issubclass(target, BaseEvaluator):
            return target(**options)
        elif graders is not None and base_dir is not None:
            # Imported here because few metrics are the user's code.
            from holodeck.lib.evaluators.grader_process import (  # noqa: PLC0415
                GraderCall,
                IsolatedEvaluator,
            )

            call = GraderCall(metric.user_code, base_dir, metric.threshold, retry_config)
            return IsolatedEvaluator(target, call, graders(), options["timeout"])
        return CustomEvaluator(target, metric.threshold, **options)
    evaluator = _built_in_class(metric.family, metric.evaluator_name)
    if evaluator.extra is not None and not all(map(is_installed, evaluator.libraries)):
        raise MissingExtra(evaluator.extra, f"metric {metric.evaluator_name}")
    lent = {"judge": judge, "base_dir": base_dir, "embeddings": embeddings}
    options |= {name: lent[name] for name in evaluator.uses}
    try:
        return evaluator(settings=metric, **options)
    except ConfigError as error:
        raise ConfigError(f"{location}.{error.field}", error.message) from error


def _require_judge_parameter(target: Callable[..., Any], name: str, location: str) -> None:
    """Raise ConfigError if a grader cannot be called with `judge=`."""
    try:
        parameters = signature(target).parameters.values()
    except (TypeError, ValueError):  # a callable without a signature
        return
    if not any(item.name == "judge" or item.kind is Parameter.VAR_KEYWORD for item in parameters):
        raise ConfigError(
            f"{location}.judge",
            f"{name!r} has no parameter 'judge'; add it, or remove 'judge: true'",
        )


def evaluator_class(metric: MetricSettings) -> type[BaseEvaluator]:
    """Return the class that computes the metric; its module is imported on first use."""
    if metric.user_code is not None:
        return CustomEvaluator
    return _built_in_class(metric.family, metric.evaluator_name)


def _built_in_class(family: str, name: str) -> type[ScoredEvaluator]:
    modules = iter(FAMILIES[family])
    while name not in BUILT_IN:
        import_module(next(modules))
    return BUILT_IN[name]


def is_installed(module: str) -> bool:
    """Whether a module can be imported; imports none but the packages around it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package of a dotted name
        return False


def needs_judge(metric: MetricSettings) -> bool:
    """Whether the metric calls a judge model; of a metric class, whether it may.

    Only the evaluator of a class knows: see `asks_judge`.
    """
    if isinstance(metric, CodeMetric):
        return metric.judge
    return evaluator_class(metric).uses_judge


def judge_model_of(agent: Agent, metric: MetricSettings) -> LLMProvider | None:
    """Return the judge model: the metric's, else that of `evaluations`, else the agent's own."""
    judge = metric.model if isinstance(metric, JudgedMetric) else None
    return judge or agent.judge_model


def can_fail(metric: MetricSettings) -> bool:
    """Whether the metric can keep a case from passing."""
    if not (metric.enabled and metric.required):
        return False
    if metric.threshold is not None:
        return metric.threshold > 0
    return evaluator_class(metric).has_verdict


def metrics_of(agent: Agent, case: TestCaseModel) -> Sequence[MetricSettings]:
    """Return the metrics of a case: its own, or else the agent's, followed by its scorers."""
    shared = agent.evaluations.metrics if agent.evaluations else []
    metrics: Sequence[MetricSettings] = shared if case.evaluations is None else case.evaluations
    return [*metrics, *case.scorers] if case.scorers else metrics


def metrics_of_turn(turn: TurnModel) -> Sequence[MetricSettings]:
    """Return the metrics of a turn, followed by its scorers."""
    return [*(turn.evaluations or ()), *(turn.scorers or ())]


def compares_nothing(metric: MetricSettings, case: TurnModel) -> bool:
    """Whether the metric is a `passfail` with nothing to compare, which cannot fail."""
    is_passfail = isinstance(metric, PassFailMetric)
    return is_passfail and case.ground_truth is None and case.expected_tools is None


_INPUT_NAMES = {
    EvalParam.GROUND_TRUTH: "'ground_truth'",
    EvalParam.EXPECTED_OUTPUT: "'ground_truth'",
    EvalParam.CONTEXT: "'files' or 'retrieval_context'",
    EvalParam.RETRIEVAL_CONTEXT: "'retrieval_context' (or name a tool in 'retrieval_tools')",
    EvalParam.EXPECTED_TOOLS: "'expected_tools'",
    EvalParam.TURNS: "several turns",
}


class RequiredInputs:
    """The inputs that metrics need, compared with those that the agent's cases have."""

    def __init__(self, agent: Agent) -> None:
        self._may_retrieve = bool(agent.retrieving_tools) or agent.has_own_model
        self._required: dict[int, frozenset[EvalParam]] = {}
        self._accepted: dict[int, frozenset[EvalParam]] = {}

    def register(self, metric: MetricSettings, evaluator: BaseEvaluator) -> None:
        """Remember the inputs of a metric, which thousands of cases may share."""
        required = evaluator.required_params()
        self._required[id(metric)] = required
        self._accepted[id(metric)] = required | evaluator.get_param_spec().optional

    def accepts(self, metric: MetricSettings, param: EvalParam) -> bool:
        """Whether a registered metric uses an input."""
        return param in self._accepted.get(id(metric), ())

    def requires(self, metric: MetricSettings, param: EvalParam) -> bool:
        """Whether a registered metric cannot be computed without an input."""
        return param in self._required.get(id(metric), ())

    def describe_missing(self, metric: MetricSettings, case: TurnModel) -> str | None:
        """Return a message about inputs that a registered metric requires and the case lacks."""
        required = self._required.get(id(metric), frozenset()) & _INPUT_NAMES.keys()
        missing = required - self._available(case) if required else required
        if not missing:
            return None
        case_or_turn = "case" if isinstance(case, TestCaseModel) else "turn"
        if isinstance(metric, ComparingMetric):
            advice = f"write 'value' here or 'ground_truth' in the {case_or_turn}"
            if case.evaluations is None:
                advice = "write 'ground_truth' here or 'value' in the metric"
            return f"the metric {metric.metric!r} has nothing to compare with; {advice}"
        if EvalParam.TURNS in missing:
            return (
                f"the metric {metric.label!r} needs a conversation; write 'turns', 'script',"
                " 'simulate' or 'history', or give the case 'evaluations' of its own"
            )
        names = " and ".join(dict.fromkeys(_INPUT_NAMES[param] for param in sorted(missing)))
        return f"the metric {metric.label!r} needs {names} in the {case_or_turn}"

    def _available(self, case: TurnModel) -> frozenset[EvalParam]:
        turns = (case.turns or ()) if isinstance(case, TestCaseModel) else ()
        is_one_input = isinstance(case, TestCaseModel) and bool(case.input) and not case.history
        available: set[EvalParam] = set() if is_one_input else {EvalParam.TURNS}
        if case.ground_truth is not None:
            available |= {EvalParam.GROUND_TRUTH, EvalParam.EXPECTED_OUTPUT}
        if case.retrieval_context or self._may_retrieve:
            available |= {EvalParam.RETRIEVAL_CONTEXT, EvalParam.CONTEXT}
        if case.expected_tools is not None:
            available.add(EvalParam.EXPECTED_TOOLS)
        if any(turn.files for turn in (case, *turns)):
            available.add(EvalParam.CONTEXT)
        return frozenset(available)
