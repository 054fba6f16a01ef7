"""From a metric of the configuration to what computes it, and what is known beforehand."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.evaluators.base import BaseEvaluator, EvaluatorOptions, RetryConfig
from holodeck.lib.evaluators.metric_rows import METRICS
from holodeck.lib.evaluators.observation_metrics import CustomEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam
from holodeck.lib.judging.judge import Judge
from holodeck.lib.registry import Registry, load_callable
from holodeck.models.agent import Agent
from holodeck.models.evaluation import ComparingMetric, MetricSettings, PassFailMetric
from holodeck.models.llm import LLMProvider
from holodeck.models.metric import JudgedMetric
from holodeck.models.test_case import TestCaseModel, TurnModel

if TYPE_CHECKING:
    from holodeck.lib.evaluators.nlp_metrics import Likeness


EVALUATORS: Registry[Callable[..., BaseEvaluator]] = Registry(
    "metric", {name: row.target for name, row in METRICS.items()}
)


def build_evaluator(
    metric: MetricSettings,
    base_dir: Path | None = None,
    *,
    where: str = "evaluations",
    judge: Judge | None = None,
    embeddings: "Callable[[], Likeness] | None" = None,
) -> BaseEvaluator:
    """The evaluator that a metric of the configuration describes. Raises ConfigError.

    A `module:callable` is imported, from `base_dir` first; that runs the user's code. `judge` is
    asked by metrics that ask one; without it they can be built and not be computed. `embeddings`
    gives what compares meanings, else it is the model that holodeck knows.
    """
    how = EvaluatorOptions(timeout=_seconds(metric), retry_config=_retries(metric))
    if metric.user_code is not None:
        return _custom(metric, metric.user_code, base_dir, where, how)
    refuse_missing_extra(metric)
    evaluator = EVALUATORS.load(metric.row, where=where)
    asked: dict[str, Any] = {"judge": judge} if asks_a_judge(metric) else {}
    if _embeds(metric):
        asked["embeddings"] = embeddings
    try:
        return evaluator(threshold=metric.threshold, **metric.options(), **asked, **how)
    except ConfigError as error:
        raise ConfigError(f"{where}.{error.field}", error.message) from error


def refuse_missing_extra(metric: MetricSettings) -> None:
    """Raise MissingExtra for a metric whose library is not installed."""
    row = METRICS.get(metric.row)
    if row is not None and row.extra and any(_is_missing(name) for name in row.modules):
        raise MissingExtra(row.extra, f"metric {metric.row}")


def asks_a_judge(metric: MetricSettings) -> bool:
    """Whether computing the metric asks a model."""
    row = METRICS.get(metric.row)
    return row is not None and row.asks


def _embeds(metric: MetricSettings) -> bool:
    row = METRICS.get(metric.row)
    return row is not None and row.embeds


def judge_of(agent: Agent, metric: MetricSettings) -> LLMProvider | None:
    """The model that judges: the metric's, else that of `evaluations`, else the agent's own."""
    own = metric.model if isinstance(metric, JudgedMetric) else None
    return own or agent.judging_model


def can_fail(metric: MetricSettings) -> bool:
    """Whether some answer exists for which the case does not pass because of the metric."""
    if not (metric.enabled and metric.required):
        return False
    if metric.threshold is not None:
        return metric.threshold > 0
    row = METRICS.get(metric.row)
    return row is None or row.has_verdict


def _custom(
    metric: MetricSettings,
    target_name: str,
    base_dir: Path | None,
    where: str,
    how: EvaluatorOptions,
) -> BaseEvaluator:
    target = load_callable(target_name, base_dir, where=where)
    if isinstance(target, type) and issubclass(target, BaseEvaluator):
        return target(**how)
    return CustomEvaluator(target, metric.threshold, **how)


def _is_missing(module: str) -> bool:
    try:
        return find_spec(module) is None
    except ModuleNotFoundError:  # the package that a dotted name begins with
        return True


def _seconds(metric: MetricSettings) -> float:
    return 60.0 if metric.timeout_ms is None else metric.timeout_ms / 1000


def _retries(metric: MetricSettings) -> RetryConfig:
    """Asked for, every error is tried again; otherwise those that tend to pass by themselves."""
    if metric.retry_on_failure is None:
        return RetryConfig()
    return RetryConfig(max_retries=metric.retry_on_failure, every_error=True)


_IN_WORDS = {
    EvalParam.GROUND_TRUTH: "'ground_truth'",
    EvalParam.EXPECTED_OUTPUT: "'ground_truth'",
    EvalParam.CONTEXT: "'files' or 'retrieval_context'",
    EvalParam.RETRIEVAL_CONTEXT: "'retrieval_context' (or give the agent a retrieval tool)",
    EvalParam.EXPECTED_TOOLS: "'expected_tools'",
    EvalParam.TURNS: "several turns",
}


class Inputs:
    """What the cases of an agent offer to metrics."""

    def __init__(self, agent: Agent) -> None:
        retrieves = any(tool.is_retrieval for tool in agent.tools or [])
        self._may_retrieve = retrieves or agent.brings_its_own_model
        self._needs: dict[int, frozenset[EvalParam]] = {}
        self._takes: dict[int, frozenset[EvalParam]] = {}

    def learn(self, metric: MetricSettings, evaluator: BaseEvaluator) -> None:
        """Take from the evaluator of a metric what it needs; ten thousand cases may share it."""
        needed = evaluator.required_params()
        self._needs[id(metric)] = needed
        self._takes[id(metric)] = needed | evaluator.get_param_spec().optional

    def takes(self, metric: MetricSettings, param: EvalParam) -> bool:
        """Whether a metric that was learned makes use of an input."""
        return param in self._takes.get(id(metric), ())

    def needs(self, metric: MetricSettings, param: EvalParam) -> bool:
        """Return whether a metric that was learned cannot do without an input."""
        return param in self._needs.get(id(metric), ())

    def missing(self, metric: MetricSettings, case: TurnModel) -> str | None:
        """What to say about an input that the metric needs and the case cannot give; else None.

        Only of metrics that were learned; those that cannot be built are told of elsewhere.
        """
        needed = self._needs.get(id(metric), frozenset()) & _IN_WORDS.keys()
        missing = needed - self._offers(case) if needed else needed
        if not missing:
            return None
        place = "case" if isinstance(case, TestCaseModel) else "turn"
        if isinstance(metric, ComparingMetric):
            wish = f"write 'value' here or 'ground_truth' in the {place}"
            if case.evaluations is None:
                wish = "write 'ground_truth' here or 'value' in the metric"
            return f"the metric {metric.metric!r} has nothing to compare with; {wish}"
        if EvalParam.TURNS in missing:
            return (
                f"the metric {metric.label!r} needs a conversation; write 'turns', 'script',"
                " 'simulate' or 'history', or give the case 'evaluations' of its own"
            )
        words = " and ".join(dict.fromkeys(_IN_WORDS[one] for one in sorted(missing)))
        return f"the metric {metric.label!r} needs {words} in the {place}"

    def _offers(self, case: TurnModel) -> frozenset[EvalParam]:
        turns = (case.turns or ()) if isinstance(case, TestCaseModel) else ()
        is_one_input = isinstance(case, TestCaseModel) and bool(case.input) and not case.history
        found: set[EvalParam] = set() if is_one_input else {EvalParam.TURNS}
        if case.ground_truth is not None:
            found |= {EvalParam.GROUND_TRUTH, EvalParam.EXPECTED_OUTPUT}
        if case.retrieval_context or self._may_retrieve:
            found |= {EvalParam.RETRIEVAL_CONTEXT, EvalParam.CONTEXT}
        if case.expected_tools is not None:
            found.add(EvalParam.EXPECTED_TOOLS)
        if any(one.files for one in (case, *turns)):
            found.add(EvalParam.CONTEXT)
        return frozenset(found)


def compares_nothing(metric: MetricSettings, case: TurnModel) -> bool:
    """Whether a `passfail` of the case or turn has nothing to compare, so that it cannot fail."""
    is_passfail = isinstance(metric, PassFailMetric)
    return is_passfail and case.ground_truth is None and case.expected_tools is None


def metrics_of(agent: Agent, case: TestCaseModel) -> Sequence[MetricSettings]:
    """The metrics that grade a case: its own, else the agent's; then its scorers."""
    shared = agent.evaluations.metrics if agent.evaluations else []
    metrics: Sequence[MetricSettings] = shared if case.evaluations is None else case.evaluations
    return [*metrics, *case.scorers] if case.scorers else metrics


def metrics_of_turn(turn: TurnModel) -> Sequence[MetricSettings]:
    """The metrics that grade a turn: its own and its scorers."""
    return [*(turn.evaluations or ()), *(turn.scorers or ())]
