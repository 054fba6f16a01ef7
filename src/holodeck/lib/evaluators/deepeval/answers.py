"""Metrics of DeepEval about a response: passages, harm, tasks, tool calls and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from holodeck.lib.evaluators.base import (
    DEFAULT_THRESHOLD,
    METRIC_S,
    ONE_IS_GOOD,
    BaseEvaluator,
    RetryConfig,
    Score,
    gather_all,
)
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.base import (
    DeepEvalBaseEvaluator,
    require_count,
    require_range,
    unseen_calls,
)
from holodeck.lib.evaluators.inputs import Exchange
from holodeck.lib.evaluators.json_schema import JsonSchemaEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam, takes
from holodeck.lib.judging.judge import JsonObject
from holodeck.lib.support.tool_names import did_you_mean_tool, find_tool
from holodeck.models.llm import LLMProvider
from holodeck.models.metrics.deepeval import (
    JsonCorrectnessMetric,
    PromptAlignmentMetric,
    RAGMetricType,
    SummarizationMetric,
)
from holodeck.models.test_case import ExpectedTool


class RAGEvaluator(DeepEvalBaseEvaluator):
    """Scores retrieved passages, or a response by them.

    Args:
        model_config: The judge model; required if no `judge` is given.
        threshold: Score from 0 to 1 to reach.
        include_reason: Whether the judge gives a reason, with an extra request.
        timeout: Seconds for an evaluation, not counting the wait for a free slot; None for no
            limit.
        retry_config: How an evaluation is retried.
        options: `strict_mode`, whether only a perfect score passes; `judge`, a judge that several
            metrics share; `settings`.
    """

    def __init__(
        self,
        *,
        model_config: LLMProvider | None = None,
        threshold: float = DEFAULT_THRESHOLD,
        include_reason: bool = True,
        timeout: float | None = METRIC_S,
        retry_config: RetryConfig | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            model_config=model_config,
            threshold=threshold,
            include_reason=include_reason,
            timeout=timeout,
            retry_config=retry_config,
            **options,
        )


class FaithfulnessEvaluator(RAGEvaluator, metric="faithfulness"):
    """The share of the response's claims that the passages do not contradict."""

    deepeval_class = "FaithfulnessMetric"
    judged = "claims"
    counted = "claims"
    without_items = "the judge found no claim in the response"
    empty_is_wrong = True
    PARAM_SPEC = takes("input", "actual_output", "retrieval_context")


class AnswerRelevancyEvaluator(RAGEvaluator, metric="answer_relevancy"):
    """The share of the response's statements that are relevant to the question."""

    deepeval_class = "AnswerRelevancyMetric"
    judged = "statements"
    empty_is_wrong = True
    PARAM_SPEC = takes("input", "actual_output")

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:
        super()._check(answer, metric, case)
        if "statements" in answer:  # a response that is not empty has statements
            require_count("statements", answer["statements"], None)


class ContextualRelevancyEvaluator(RAGEvaluator, metric="contextual_relevancy"):
    """The share of the passages' statements that are relevant to the question."""

    deepeval_class = "ContextualRelevancyMetric"
    PARAM_SPEC = takes("input", "retrieval_context", optional=("actual_output",))


class ContextualPrecisionEvaluator(RAGEvaluator, metric="contextual_precision"):
    """How far the useful passages rank above the others."""

    deepeval_class = "ContextualPrecisionMetric"
    PARAM_SPEC = takes("input", "expected_output", "retrieval_context", optional=("actual_output",))

    def _expected_verdicts(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(case.retrieval_context)


class ContextualRecallEvaluator(RAGEvaluator, metric="contextual_recall"):
    """The share of the ground truth's sentences that the passages support."""

    deepeval_class = "ContextualRecallMetric"
    PARAM_SPEC = takes("input", "expected_output", "retrieval_context", optional=("actual_output",))


class RAGEvaluatorConstructor(Protocol):
    """The common constructor of the metrics about retrieved passages."""

    def __call__(
        self,
        *,
        model_config: LLMProvider | None = None,
        threshold: float = 0.5,
        include_reason: bool = True,
        timeout: float | None = METRIC_S,
        retry_config: RetryConfig | None = None,
    ) -> BaseEvaluator:
        """Return the evaluator with the judge model `model_config`. Raises ConfigError."""
        ...


RAG_EVALUATOR_MAP: Mapping[RAGMetricType, RAGEvaluatorConstructor] = {
    RAGMetricType.FAITHFULNESS: FaithfulnessEvaluator,
    RAGMetricType.CONTEXTUAL_RELEVANCY: ContextualRelevancyEvaluator,
    RAGMetricType.CONTEXTUAL_PRECISION: ContextualPrecisionEvaluator,
    RAGMetricType.CONTEXTUAL_RECALL: ContextualRecallEvaluator,
    RAGMetricType.ANSWER_RELEVANCY: AnswerRelevancyEvaluator,
}


class HarmEvaluator(DeepEvalBaseEvaluator):
    """The share of the response that is free of some harm: a score of 1 means no harm."""

    scale = ONE_IS_GOOD
    PARAM_SPEC = takes("actual_output", optional=("input",))


class HallucinationEvaluator(HarmEvaluator, metric="hallucination"):
    """The share of the given texts that the response agrees with."""

    deepeval_class = "HallucinationMetric"
    PARAM_SPEC = takes("actual_output", "context", optional=("input",))

    def _expected_verdicts(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(case.context)


class BiasEvaluator(HarmEvaluator, metric="bias"):
    """The share of the response's opinions that are not biased."""

    deepeval_class = "BiasMetric"
    judged = "opinions"


class ToxicityEvaluator(HarmEvaluator, metric="toxicity"):
    """The share of the response's opinions that are not toxic."""

    deepeval_class = "ToxicityMetric"
    judged = "opinions"


class PIILeakageEvaluator(HarmEvaluator, metric="pii_leakage"):
    """The share of possible personal data in the response that is not personal data."""

    deepeval_class = "PIILeakageMetric"
    judged = "extracted_pii"


class SummarizationEvaluator(DeepEvalBaseEvaluator, metric="summarization"):
    """The response summarizes the input: the lower of the scores for truth and for coverage."""

    settings: SummarizationMetric
    deepeval_class = "SummarizationMetric"
    judged = "claims"
    empty_is_wrong = True
    PARAM_SPEC = takes("input", "actual_output")

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "assessment_questions": self.settings.assessment_questions}

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:
        super()._check(answer, metric, case)
        if "questions" in answer:
            require_count("questions", answer["questions"], None)
        if "answers" in answer:
            require_count("answers", answer["answers"], len(metric.assessment_questions))
            for word in answer["answers"]:
                if word.strip().lower() not in {"yes", "no"}:
                    raise ValueError(f"'answers' has {word!r}, which is neither 'yes' nor 'no'")


class PromptAlignmentEvaluator(DeepEvalBaseEvaluator, metric="prompt_alignment"):
    """The share of the instructions that the response follows."""

    settings: PromptAlignmentMetric
    deepeval_class = "PromptAlignmentMetric"
    PARAM_SPEC = takes("input", "actual_output")

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "prompt_instructions": self.settings.prompt_instructions}

    def _expected_verdicts(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(self.settings.prompt_instructions)


class TaskCompletionEvaluator(DeepEvalBaseEvaluator, metric="task_completion"):
    """How far the agent did the task, judged by its response and its tool calls."""

    deepeval_class = "TaskCompletionMetric"
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
    deepeval_class = "ToolCorrectnessMetric"
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

    deepeval_class = "ArgumentCorrectnessMetric"
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
        reason = self._reasons(dict(zip(judged, scores, strict=True)))
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


class JsonCorrectnessEvaluator(DeepEvalBaseEvaluator, metric="json_correctness"):
    """The response is JSON that is valid by a schema; the judge only explains the errors."""

    settings: JsonCorrectnessMetric
    deepeval_class = "JsonCorrectnessMetric"
    PARAM_SPEC = takes("actual_output", optional=("input",))

    def _configure(self) -> None:
        super()._configure()
        self._schema_check = JsonSchemaEvaluator(schema=self.settings.schema_, timeout=None)

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        check = await self._schema_check.evaluate(response=kwargs[EvalParam.ACTUAL_OUTPUT])
        fault = None if check["passed"] else check["reasoning"]
        schema = _CheckedSchema(self.settings.schema_, fault)
        options = {**self._options(), "expected_schema": schema}
        score = await self._measure(self._test_case(kwargs), options)
        return score if score.reason else replace(score, reason=check["reasoning"])


class _CheckedSchema:
    """Replaces the pydantic model that DeepEval expects, with the result of our own check."""

    def __init__(self, schema: Mapping[str, Any], fault: str | None) -> None:
        self._schema = schema
        self._fault = fault

    def model_validate_json(self, _: str) -> None:
        if self._fault is not None:
            error = PydanticCustomError("json_schema", "{fault}", {"fault": self._fault})
            raise ValidationError.from_exception_data("answer", [{"type": error, "input": None}])

    def model_json_schema(self) -> Mapping[str, Any]:
        return self._schema
