"""Metrics of DeepEval about how an agent works: its plan, steps, goals, tools and topics."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.base import DeepEvalBaseEvaluator
from holodeck.lib.evaluators.deepeval.cases import to_turn, trace_of, turns_of, turns_with_passages
from holodeck.lib.evaluators.inputs import Exchange
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.judging.judge import JsonObject
from holodeck.models.metrics.deepeval import TopicAdherenceMetric


class TraceEvaluator(DeepEvalBaseEvaluator):
    """Scores the steps of an agent: its responses, and its tool calls with their results."""

    PARAM_SPEC = ParamSpec(
        required=frozenset({EvalParam.ACTUAL_OUTPUT, EvalParam.TOOLS_CALLED, EvalParam.EXCHANGES}),
        optional=frozenset({EvalParam.INPUT}),
    )

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        case = super()._test_case(kwargs)
        case._trace_dict = trace_of(kwargs[EvalParam.EXCHANGES])  # noqa: SLF001 - its only place
        return case


class StepEfficiencyEvaluator(TraceEvaluator):
    """How few unnecessary steps the agent took."""

    metric = "step_efficiency"
    deepeval_class = "StepEfficiencyMetric"


class PlanEvaluator(TraceEvaluator):
    """Scores the plan that the judge finds in what the agent said and did."""

    counted = "plan"
    without_items = "the judge found no plan in the agent's steps"


class PlanAdherenceEvaluator(PlanEvaluator):
    """How closely the agent kept to its plan."""

    metric = "plan_adherence"
    deepeval_class = "PlanAdherenceMetric"


class PlanQualityEvaluator(PlanEvaluator):
    """How good the agent's plan is for the task."""

    metric = "plan_quality"
    deepeval_class = "PlanQualityMetric"


class ExchangesEvaluator(DeepEvalBaseEvaluator):
    """Scores each response with its input, in a case with one input, too."""

    PARAM_SPEC = ParamSpec(required=frozenset({EvalParam.EXCHANGES}))

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        turns = turns_of(kwargs[EvalParam.EXCHANGES])
        if not any(turn.role == "user" for turn in turns):
            raise EvaluationError(f"{self.metric} needs a user message that the agent answers")
        return adapter.library().cases.ConversationalTestCase(
            turns=[to_turn(turn, mark_unseen=True) for turn in turns]
        )


class GoalAccuracyEvaluator(ExchangesEvaluator):
    """How far the agent reached the user's goals, and how well it went about them."""

    metric = "goal_accuracy"
    deepeval_class = "GoalAccuracyMetric"
    takes_text = True


class TopicAdherenceEvaluator(ExchangesEvaluator):
    """The share of questions that the agent rightly answered, or rightly did not."""

    settings: TopicAdherenceMetric
    metric = "topic_adherence"
    deepeval_class = "TopicAdherenceMetric"
    counted = "qa_pairs"
    without_items = "the judge found no question and answer"

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "relevant_topics": self.settings.relevant_topics}


class ToolUseEvaluator(ExchangesEvaluator):
    """The lower of two scores: the right tools were chosen, and their arguments are right."""

    metric = "tool_use"
    deepeval_class = "ToolUseMetric"
    PARAM_SPEC = ParamSpec(
        required=frozenset({EvalParam.EXCHANGES, EvalParam.TOOLS_CALLED, EvalParam.TOOLS})
    )

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        exchanges: Sequence[Exchange] = kwargs[EvalParam.EXCHANGES]
        calls = [exchange.response.tool_calls for exchange in exchanges]
        if None in calls:
            raise EvaluationError("the tool calls of a turn are unknown")
        if not any(calls):
            return {**self._build_result(0.0, "the agent called no tool"), "inconclusive": True}
        make = adapter.library().cases.ToolCall
        tools = [
            make(
                name=tool.name,
                description=tool.description,
                input_parameters=dict(tool.parameters),
            )
            for tool in kwargs[EvalParam.TOOLS]
        ]
        options = {**self._options(), "available_tools": tools}
        return await self._measure(self._test_case(kwargs), options)


class TurnRAGEvaluator(DeepEvalBaseEvaluator):
    """Scores the retrieval of a conversation turn by turn, each with the passages so far."""

    PARAM_SPEC = ParamSpec(required=frozenset({EvalParam.EXCHANGES, EvalParam.RETRIEVAL_CONTEXT}))

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        expected = kwargs.get(EvalParam.EXPECTED_OUTPUT)
        return adapter.library().cases.ConversationalTestCase(
            turns=turns_with_passages(
                kwargs[EvalParam.EXCHANGES], kwargs[EvalParam.RETRIEVAL_CONTEXT]
            ),
            expected_outcome=None if expected is None else adapter.clean_text(expected),
        )


class TurnFaithfulnessEvaluator(TurnRAGEvaluator):
    """The share of the responses' claims that the passages so far do not contradict."""

    metric = "turn_faithfulness"
    deepeval_class = "TurnFaithfulnessMetric"
    counted = "claims"
    without_items = "the judge found no claim in the responses"

    def _options(self) -> dict[str, Any]:
        # DeepEval 4.3 would ask for the reason in a way that blocks the event loop.
        return {**super()._options(), "include_reason": False}

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:
        super()._check(answer, metric, case)
        verdicts = answer.get("verdicts", ())
        reasons = [verdict["reason"] for verdict in verdicts if verdict["verdict"] == "no"]
        metric.contradictions = [*getattr(metric, "contradictions", []), *filter(None, reasons)]

    def _result_of(self, metric: Any, case: Any) -> dict[str, Any]:
        """Give the reasons of the verdicts as the reason."""
        if self.include_reason:
            reasons = dict.fromkeys(metric.contradictions)
            metric.reason = "; ".join(reasons) or "no claim contradicts the passages"
        return super()._result_of(metric, case)


class TurnContextualRelevancyEvaluator(TurnRAGEvaluator):
    """The share of the passages' statements that are relevant to what the user said."""

    metric = "turn_contextual_relevancy"
    deepeval_class = "TurnContextualRelevancyMetric"


_WITH_OUTCOME = ParamSpec(
    required=TurnRAGEvaluator.PARAM_SPEC.required | {EvalParam.EXPECTED_OUTPUT}
)


class TurnContextualPrecisionEvaluator(TurnRAGEvaluator):
    """How far the passages that lead to the ground truth rank above the others."""

    metric = "turn_contextual_precision"
    deepeval_class = "TurnContextualPrecisionMetric"
    PARAM_SPEC: ClassVar[ParamSpec] = _WITH_OUTCOME


class TurnContextualRecallEvaluator(TurnRAGEvaluator):
    """The share of the ground truth's sentences that the passages support."""

    metric = "turn_contextual_recall"
    deepeval_class = "TurnContextualRecallMetric"
    PARAM_SPEC: ClassVar[ParamSpec] = _WITH_OUTCOME
