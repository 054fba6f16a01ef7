"""What metrics need of a case, and whether the case can give it; known before anything runs."""

from collections.abc import Sequence

from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam
from holodeck.models.agent import Agent
from holodeck.models.evaluation import ComparingMetric, MetricSettings, PassFailMetric
from holodeck.models.test_case import TestCaseModel, TurnModel

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
