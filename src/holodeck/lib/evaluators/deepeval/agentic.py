"""Metrics of DeepEval about how an agent works: task, plan, goals, tools and topics."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import Score
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.base import (
    DeepEvalBaseEvaluator,
    require_range,
    to_turn,
    turns_of,
    unseen_calls,
)
from holodeck.lib.evaluators.inputs import Exchange
from holodeck.lib.evaluators.param_spec import EvalParam, takes
from holodeck.lib.judging.judge import JsonObject
from holodeck.lib.processes.threads import gather_all
from holodeck.lib.support.tool_names import did_you_mean_tool, find_tool
from holodeck.models.metrics.deepeval import TopicAdherenceMetric
from holodeck.models.test_case import ExpectedTool


class TaskCompletionEvaluator(DeepEvalBaseEvaluator, metric="task_completion"):
    """How far the agent did the task, judged by its response and its tool calls."""

    PARAM_SPEC = takes("input", "actual_output", optional=("tools_called",))

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        case = super()._test_case(kwargs)
        if case.tools_called is None:  # otherwise the judge would assume that no tool was called
            case.tools_called = unseen_calls()
        return case

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:  # noqa: ARG002
        if "verdict" in answer:
            require_range("verdict", answer["verdict"], 0, 1)


class ToolCorrectnessEvaluator(DeepEvalBaseEvaluator, metric="tool_correctness"):
    """The share of the expected tools that were called, by name; needs no judge.

    Names match as in `expected_tools`.
    """

    uses_judge = False
    PARAM_SPEC = takes("tools_called", "expected_tools", optional=("input",))

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        case, make = super()._test_case(kwargs), adapter.library().cases.ToolCall
        called = [call.name for call in kwargs[EvalParam.TOOLS_CALLED]]
        expected = kwargs[EvalParam.EXPECTED_TOOLS]
        case.tools_called = [make(name=name) for name in called]
        case.expected_tools = [make(name=_full_name(tool, called)) for tool in expected]
        return case

    def _score_of(self, metric: Any, case: Any) -> Score:
        score = super()._score_of(metric, case)
        called = [call.name for call in case.tools_called]
        missing = [tool.name for tool in case.expected_tools if tool.name not in called]
        hints = [f"no call of {name!r}{did_you_mean_tool(name, called)}" for name in missing]
        return replace(score, reason="; ".join(filter(None, [score.reason, *hints])))


class ArgumentCorrectnessEvaluator(DeepEvalBaseEvaluator, metric="argument_correctness"):
    """The share of the tool calls whose arguments are right for the user's input.

    In a conversation, the calls of each turn are judged with the input of that turn.
    """

    without_items = "the agent called no tool"
    PARAM_SPEC = takes("input", "tools_called", optional=("exchanges",))

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        exchanges: Sequence[Exchange] = kwargs.get(EvalParam.EXCHANGES) or ()
        numbered = enumerate(exchanges, 1)
        judged = {number: item for number, item in numbered if item.response.tool_calls}
        if len(exchanges) == 1 or not (judged and kwargs[EvalParam.TOOLS_CALLED]):
            return await super()._evaluate_impl(**kwargs)
        scores = await gather_all(
            self._measure(self._case_of(exchange), self._options()) for exchange in judged.values()
        )
        counts = [len(exchange.response.tool_calls or ()) for exchange in judged.values()]
        pairs = zip(scores, counts, strict=True)
        mean = sum(score.score * count for score, count in pairs) / sum(counts)
        numbers = zip(judged, scores, strict=True)
        reasons = [f"turn {number}: {score.reason}" for number, score in numbers]
        reason = "; ".join(reasons) if self.include_reason else ""
        return self._score(0.0 if self.strict_mode and mean < 1 else mean, reason)

    def _case_of(self, exchange: Exchange) -> Any:
        calls = exchange.response.tool_calls
        return self._test_case({EvalParam.INPUT: exchange.input, EvalParam.TOOLS_CALLED: calls})

    def _expected_verdicts(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(case.tools_called)

    def _item_count(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(case.tools_called)


def _full_name(expected: str | ExpectedTool, called: Sequence[str]) -> str:
    """Return the called name that is meant; without `match: exact`, a part of the name matches.

    Raises EvaluationError if the expected name may mean several tools.
    """
    if isinstance(expected, ExpectedTool) and expected.match == "exact":
        return find_tool(expected.name, called) or expected.name
    name = expected if isinstance(expected, str) else expected.name
    return next((full for full in called if name in full), name)


class TraceEvaluator(DeepEvalBaseEvaluator):
    """Scores the steps of an agent: its responses, and its tool calls with their results."""

    PARAM_SPEC = takes("actual_output", "tools_called", "exchanges", optional=("input",))

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        case = super()._test_case(kwargs)
        case._trace_dict = trace_of(kwargs[EvalParam.EXCHANGES])  # noqa: SLF001 - its only place
        return case


class StepEfficiencyEvaluator(TraceEvaluator, metric="step_efficiency"):
    """How few unnecessary steps the agent took."""


class PlanEvaluator(TraceEvaluator):
    """Scores the plan that the judge finds in what the agent said and did."""

    counted = "plan"
    without_items = "the judge found no plan in the agent's steps"


class PlanAdherenceEvaluator(PlanEvaluator, metric="plan_adherence"):
    """How closely the agent kept to its plan."""


class PlanQualityEvaluator(PlanEvaluator, metric="plan_quality"):
    """How good the agent's plan is for the task."""


class ExchangesEvaluator(DeepEvalBaseEvaluator):
    """Scores each response with its input, in a case with a single input, too."""

    PARAM_SPEC = takes("exchanges")

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        turns = turns_of(kwargs[EvalParam.EXCHANGES])
        if not any(turn.role == "user" for turn in turns):
            raise EvaluationError(f"{self.metric} needs a user message that the agent answers")
        return adapter.library().cases.ConversationalTestCase(
            turns=[to_turn(turn, mark_unseen=True) for turn in turns]
        )


class GoalAccuracyEvaluator(ExchangesEvaluator, metric="goal_accuracy"):
    """How far the agent reached the user's goals, and how well it went about them."""

    takes_text = True


class TopicAdherenceEvaluator(ExchangesEvaluator, metric="topic_adherence"):
    """The share of questions that the agent rightly answered, or rightly did not."""

    settings: TopicAdherenceMetric
    counted = "qa_pairs"
    without_items = "the judge found no question and answer"

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "relevant_topics": self.settings.relevant_topics}


class ToolUseEvaluator(ExchangesEvaluator, metric="tool_use"):
    """The lower of two scores: the right tools were chosen, and their arguments are right."""

    PARAM_SPEC = takes("exchanges", "tools_called", "tools")

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        exchanges: Sequence[Exchange] = kwargs[EvalParam.EXCHANGES]
        calls = [exchange.response.tool_calls for exchange in exchanges]
        if None in calls:
            raise EvaluationError("the tool calls of a turn are unknown")
        if not any(calls):
            return self._score(0.0, "the agent called no tool", inconclusive=True)
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

    PARAM_SPEC = takes("exchanges", "retrieval_context")

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        expected = kwargs.get(EvalParam.EXPECTED_OUTPUT)
        return adapter.library().cases.ConversationalTestCase(
            turns=turns_with_passages(
                kwargs[EvalParam.EXCHANGES], kwargs[EvalParam.RETRIEVAL_CONTEXT]
            ),
            expected_outcome=None if expected is None else adapter.clean_text(expected),
        )


class TurnFaithfulnessEvaluator(TurnRAGEvaluator, metric="turn_faithfulness"):
    """The share of the responses' claims that the passages so far do not contradict."""

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

    def _score_of(self, metric: Any, case: Any) -> Score:
        """Give the reasons of the verdicts as the reason."""
        if self.include_reason:
            reasons = dict.fromkeys(metric.contradictions)
            metric.reason = "; ".join(reasons) or "no claim contradicts the passages"
        return super()._score_of(metric, case)


class TurnContextualRelevancyEvaluator(TurnRAGEvaluator, metric="turn_contextual_relevancy"):
    """The share of the passages' statements that are relevant to what the user said."""


class TurnContextualPrecisionEvaluator(TurnRAGEvaluator, metric="turn_contextual_precision"):
    """How far the passages that lead to the ground truth rank above the others."""

    PARAM_SPEC = takes("exchanges", "retrieval_context", "expected_output")


class TurnContextualRecallEvaluator(TurnRAGEvaluator, metric="turn_contextual_recall"):
    """The share of the ground truth's sentences that the passages support."""

    PARAM_SPEC = takes("exchanges", "retrieval_context", "expected_output")


def passages_of(exchanges: Sequence[Exchange], passages: Sequence[str]) -> list[Sequence[str]]:
    """Return the passages of each exchange: those that the agent reports, or that its tool calls
    have, where all come from there.

    Passages that the case gives, and those of tools that only return text, go to the first.
    """
    retrieved: list[Sequence[str]] = [
        exchange.response.passages
        or [text for call in exchange.response.tool_calls or () for text in call.passages or ()]
        for exchange in exchanges
    ]
    if list(chain.from_iterable(retrieved)) == list(passages):
        return retrieved
    return [passages, *([] for _ in exchanges[1:])]


def turns_with_passages(exchanges: Sequence[Exchange], passages: Sequence[str]) -> list[Any]:
    """Return the messages in DeepEval's format, from the first response with passages on.

    DeepEval would give a turn without any the best score.
    """
    retrieved = passages_of(exchanges, passages)
    start = next(index for index, texts in enumerate(retrieved) if texts)
    return [
        to_turn(turn, texts if turn.role == "assistant" else None, mark_unseen=True)
        for exchange, texts in zip(exchanges[start:], retrieved[start:], strict=True)
        for turn in turns_of([exchange])
    ]


def trace_of(exchanges: Sequence[Exchange]) -> dict[str, Any]:
    """Return the trace that DeepEval's metrics about an agent's steps read.

    It has the form of DeepEval's own tracing: a span for each response, and in it a span for each
    tool call. Raises EvaluationError if the tool calls of a response are unknown.
    """
    if any(exchange.response.tool_calls is None for exchange in exchanges):
        raise EvaluationError("the tool calls of a turn are unknown, so its steps are")
    spans: list[dict[str, Any]] = [
        {
            "name": "agent",
            "type": "agent",
            "input": adapter.clean_text(exchange.input),
            "output": adapter.clean_text(exchange.response.content),
            "children": [
                {"name": call.name, "type": "tool", "input": call.args, "output": call.result}
                for call in exchange.response.tool_calls or ()
            ],
        }
        for exchange in exchanges
    ]
    if len(spans) == 1:
        return spans[0]
    return {"name": "conversation", "type": "base", "children": spans}
