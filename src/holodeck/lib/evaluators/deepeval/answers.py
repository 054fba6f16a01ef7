"""Metrics of DeepEval about one response: harm, tasks, tool calls and JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from holodeck.lib.evaluators.base import ONE_IS_GOOD, gather_all
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.base import (
    DeepEvalBaseEvaluator,
    require_count,
    require_range,
)
from holodeck.lib.evaluators.deepeval.cases import unseen_calls
from holodeck.lib.evaluators.inputs import Exchange
from holodeck.lib.evaluators.json_schema import JsonSchemaEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.judging.judge import JsonObject
from holodeck.lib.support.tool_names import did_you_mean_tool, find_tool
from holodeck.models.metrics.deepeval import (
    JsonCorrectnessMetric,
    PromptAlignmentMetric,
    SummarizationMetric,
)
from holodeck.models.test_case import ExpectedTool


class HarmEvaluator(DeepEvalBaseEvaluator):
    """The share of the response that is free of some harm: a score of 1 means no harm."""

    scale = ONE_IS_GOOD
    PARAM_SPEC = ParamSpec(
        required=frozenset({EvalParam.ACTUAL_OUTPUT}), optional=frozenset({EvalParam.INPUT})
    )


class HallucinationEvaluator(HarmEvaluator):
    """The share of the given texts that the response agrees with."""

    metric = "hallucination"
    deepeval_class = "HallucinationMetric"
    PARAM_SPEC = ParamSpec(
        required=frozenset({EvalParam.ACTUAL_OUTPUT, EvalParam.CONTEXT}),
        optional=frozenset({EvalParam.INPUT}),
    )

    def _expected_verdicts(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(case.context)


class BiasEvaluator(HarmEvaluator):
    """The share of the response's opinions that are not biased."""

    metric = "bias"
    deepeval_class = "BiasMetric"
    judged = "opinions"


class ToxicityEvaluator(HarmEvaluator):
    """The share of the response's opinions that are not toxic."""

    metric = "toxicity"
    deepeval_class = "ToxicityMetric"
    judged = "opinions"


class PIILeakageEvaluator(HarmEvaluator):
    """The share of possible personal data in the response that is not personal data."""

    metric = "pii_leakage"
    deepeval_class = "PIILeakageMetric"
    judged = "extracted_pii"


_RESPONSE_TO_INPUT = frozenset({EvalParam.INPUT, EvalParam.ACTUAL_OUTPUT})


class SummarizationEvaluator(DeepEvalBaseEvaluator):
    """The response summarizes the input: the lower of the scores for truth and for coverage."""

    settings: SummarizationMetric
    metric = "summarization"
    deepeval_class = "SummarizationMetric"
    judged = "claims"
    empty_is_wrong = True
    PARAM_SPEC = ParamSpec(required=_RESPONSE_TO_INPUT)

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


class PromptAlignmentEvaluator(DeepEvalBaseEvaluator):
    """The share of the instructions that the response follows."""

    settings: PromptAlignmentMetric
    metric = "prompt_alignment"
    deepeval_class = "PromptAlignmentMetric"
    PARAM_SPEC = ParamSpec(required=_RESPONSE_TO_INPUT)

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "prompt_instructions": self.settings.prompt_instructions}

    def _expected_verdicts(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(self.settings.prompt_instructions)


class TaskCompletionEvaluator(DeepEvalBaseEvaluator):
    """How far the agent did the task, judged by its response and its tool calls."""

    metric = "task_completion"
    deepeval_class = "TaskCompletionMetric"
    PARAM_SPEC = ParamSpec(
        required=_RESPONSE_TO_INPUT, optional=frozenset({EvalParam.TOOLS_CALLED})
    )

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        case = super()._test_case(kwargs)
        if case.tools_called is None:  # otherwise the judge would assume that no tool was called
            case.tools_called = unseen_calls()
        return case

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:  # noqa: ARG002
        if "verdict" in answer:
            require_range("verdict", answer["verdict"], 0, 1)


class ToolCorrectnessEvaluator(DeepEvalBaseEvaluator):
    """The share of the expected tools that were called, by name; needs no judge.

    Names match as in `expected_tools`.
    """

    metric = "tool_correctness"
    uses_judge = False
    deepeval_class = "ToolCorrectnessMetric"
    PARAM_SPEC = ParamSpec(
        required=frozenset({EvalParam.TOOLS_CALLED, EvalParam.EXPECTED_TOOLS}),
        optional=frozenset({EvalParam.INPUT}),
    )

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        case, make = super()._test_case(kwargs), adapter.library().cases.ToolCall
        called = [call.name for call in kwargs[EvalParam.TOOLS_CALLED]]
        expected = kwargs[EvalParam.EXPECTED_TOOLS]
        case.tools_called = [make(name=name) for name in called]
        case.expected_tools = [make(name=_full_name(tool, called)) for tool in expected]
        return case

    def _result_of(self, metric: Any, case: Any) -> dict[str, Any]:
        result = super()._result_of(metric, case)
        called = [call.name for call in case.tools_called]
        missing = [tool.name for tool in case.expected_tools if tool.name not in called]
        hints = [f"no call of {name!r}{did_you_mean_tool(name, called)}" for name in missing]
        return {**result, "reasoning": "; ".join(filter(None, [result["reasoning"], *hints]))}


class ArgumentCorrectnessEvaluator(DeepEvalBaseEvaluator):
    """The share of the tool calls whose arguments are right for the user's input.

    In a conversation, the calls of each turn are judged with the input of that turn.
    """

    metric = "argument_correctness"
    deepeval_class = "ArgumentCorrectnessMetric"
    without_items = "the agent called no tool"
    PARAM_SPEC = ParamSpec(
        required=frozenset({EvalParam.INPUT, EvalParam.TOOLS_CALLED}),
        optional=frozenset({EvalParam.EXCHANGES}),
    )

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        exchanges: Sequence[Exchange] = kwargs.get(EvalParam.EXCHANGES) or ()
        numbered = enumerate(exchanges, 1)
        judged = {number: item for number, item in numbered if item.response.tool_calls}
        if len(exchanges) == 1 or not (judged and kwargs[EvalParam.TOOLS_CALLED]):
            return await super()._evaluate_impl(**kwargs)
        results = await gather_all(
            self._measure(self._case_of(exchange), self._options()) for exchange in judged.values()
        )
        counts = [len(exchange.response.tool_calls or ()) for exchange in judged.values()]
        pairs = zip(results, counts, strict=True)
        score = sum(result["score"] * count for result, count in pairs) / sum(counts)
        turns = zip(judged, results, strict=True)
        reason = "; ".join(f"turn {number}: {result['reasoning']}" for number, result in turns)
        return self._build_result(
            0.0 if self.strict_mode and score < 1 else score, reason if self.include_reason else ""
        )

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


class JsonCorrectnessEvaluator(DeepEvalBaseEvaluator):
    """The response is JSON that is valid by a schema; the judge only explains the errors."""

    settings: JsonCorrectnessMetric
    metric = "json_correctness"
    deepeval_class = "JsonCorrectnessMetric"
    PARAM_SPEC = ParamSpec(
        required=frozenset({EvalParam.ACTUAL_OUTPUT}), optional=frozenset({EvalParam.INPUT})
    )

    def _configure(self) -> None:
        super()._configure()
        self._schema_check = JsonSchemaEvaluator(schema=self.settings.schema_, timeout=None)

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        check = await self._schema_check.evaluate(response=kwargs[EvalParam.ACTUAL_OUTPUT])
        fault = None if check["passed"] else check["reasoning"]
        schema = _CheckedSchema(self.settings.schema_, fault)
        options = {**self._options(), "expected_schema": schema}
        result = await self._measure(self._test_case(kwargs), options)
        return result if result["reasoning"] else {**result, "reasoning": check["reasoning"]}


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
