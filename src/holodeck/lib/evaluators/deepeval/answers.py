"""Metrics named after what an answer should not have: a score of 1 says that it has none."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from holodeck.errors import ConfigError
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.base import (
    ONE_IS_GOOD,
    DeepEvalEvaluator,
    JudgeOptions,
    ReasonOptions,
    require_count,
    require_range,
)
from holodeck.lib.evaluators.json_schema import JsonSchemaEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam as P
from holodeck.lib.evaluators.param_spec import ParamSpec
from holodeck.lib.judging.judge import JsonObject, Judge
from holodeck.models.evidence import UNSEEN_CALLS
from holodeck.models.test_case import ExpectedTool


class HarmEvaluator(DeepEvalEvaluator):
    """The share of the answer that is free of some harm.

    Args:
        include_reason: Whether the judge says why, which costs one call more.
        strict_mode: Whether only a perfect score counts.
    """

    scale = ONE_IS_GOOD
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset({P.ACTUAL_OUTPUT}), optional=frozenset({P.INPUT})
    )

    def __init__(
        self,
        *,
        include_reason: bool = True,
        strict_mode: bool = False,
        **judged: Unpack[JudgeOptions],
    ) -> None:
        super().__init__(include_reason=include_reason, strict_mode=strict_mode, **judged)


class HallucinationEvaluator(HarmEvaluator):
    """The share of the given texts that the answer agrees with."""

    metric = "hallucination"
    kind = "HallucinationMetric"
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset({P.ACTUAL_OUTPUT, P.CONTEXT}),
        optional=frozenset({P.INPUT}),
        uses_context=True,
    )

    def _judged(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(case.context)


class BiasEvaluator(HarmEvaluator):
    """The share of the answer's opinions that are not biased."""

    metric = "bias"
    kind = "BiasMetric"

    def _judged(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(metric.opinions)


class ToxicityEvaluator(HarmEvaluator):
    """The share of the answer's opinions that are not toxic."""

    metric = "toxicity"
    kind = "ToxicityMetric"

    def _judged(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(metric.opinions)


class PIILeakageEvaluator(HarmEvaluator):
    """The share of what looks like personal data in the answer that is none."""

    metric = "pii_leakage"
    kind = "PIILeakageMetric"

    def _judged(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(metric.extracted_pii)


_ANSWER_TO_INPUT = frozenset({P.INPUT, P.ACTUAL_OUTPUT})


class TaskEvaluator(DeepEvalEvaluator):
    """A metric about a task.

    Args:
        include_reason: Whether the judge says why, which costs one call more.
        strict_mode: Whether only a perfect score counts.
    """

    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(required=_ANSWER_TO_INPUT)

    def __init__(
        self,
        *,
        include_reason: bool = True,
        strict_mode: bool = False,
        **judged: Unpack[JudgeOptions],
    ) -> None:
        super().__init__(include_reason=include_reason, strict_mode=strict_mode, **judged)


class SummarizationEvaluator(TaskEvaluator):
    """The answer sums up the input: the lower of what is true and what is covered.

    Args:
        assessment_questions: Questions that a good summary answers with yes; the judge makes five
            if there are none.
    """

    metric = "summarization"
    kind = "SummarizationMetric"
    empty_is_wrong = True

    def __init__(
        self, *, assessment_questions: Sequence[str] | None = None, **how: Unpack[ReasonOptions]
    ) -> None:
        super().__init__(**how)
        self._questions = list(assessment_questions or []) or None

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "assessment_questions": self._questions}

    def _judged(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(metric.claims)

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:
        super()._check(answer, metric, case)
        if "questions" in answer:
            require_count("questions", answer["questions"], None)
        if "answers" in answer:
            require_count("answers", answer["answers"], len(metric.assessment_questions))
            odd = next((one for one in answer["answers"] if _word(one) not in {"yes", "no"}), None)
            if odd is not None:
                raise ValueError(f"'answers' has {odd!r}, which is neither 'yes' nor 'no'")


class PromptAlignmentEvaluator(TaskEvaluator):
    """The share of the instructions that the answer keeps to.

    Args:
        prompt_instructions: The instructions.
    """

    metric = "prompt_alignment"
    kind = "PromptAlignmentMetric"

    def __init__(self, *, prompt_instructions: Sequence[str], **how: Unpack[ReasonOptions]) -> None:
        super().__init__(**how)
        self._instructions = list(prompt_instructions or [])
        if not self._instructions:
            raise ConfigError("prompt_instructions", "is missing: say what to keep to")

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "prompt_instructions": self._instructions}

    def _judged(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(self._instructions)


class TaskCompletionEvaluator(TaskEvaluator):
    """How far the agent did what the user wanted, by its answer and its tool calls."""

    metric = "task_completion"
    kind = "TaskCompletionMetric"
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=_ANSWER_TO_INPUT, optional=frozenset({P.TOOLS_CALLED})
    )

    def _case(self, kwargs: Mapping[str, Any]) -> Any:
        case = super()._case(kwargs)
        if case.tools_called is None:  # the judge would believe that no tool was called
            case.tools_called = [adapter.library().cases.ToolCall(name=UNSEEN_CALLS)]
        return case

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:  # noqa: ARG002
        if "verdict" in answer:
            require_range("verdict", answer["verdict"], 0, 1)


def _word(answer: str) -> str:
    return answer.strip().lower()


class ToolCorrectnessEvaluator(DeepEvalEvaluator):
    """The share of the expected tools that were called, by name; no judge is asked."""

    metric = "tool_correctness"
    kind = "ToolCorrectnessMetric"
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset({P.TOOLS_CALLED, P.EXPECTED_TOOLS}), optional=frozenset({P.INPUT})
    )

    def _asked(self) -> Judge | None:
        return None

    def _case(self, kwargs: Mapping[str, Any]) -> Any:
        case, make = super()._case(kwargs), adapter.library().cases.ToolCall
        called = [call.name for call in kwargs[P.TOOLS_CALLED]]
        wanted = kwargs[P.EXPECTED_TOOLS]
        case.tools_called = [make(name=name) for name in called]
        case.expected_tools = [make(name=_full_name(one, called)) for one in wanted]
        return case


class ArgumentCorrectnessEvaluator(DeepEvalEvaluator):
    """The share of the tool calls whose arguments are right for what the user said."""

    metric = "argument_correctness"
    kind = "ArgumentCorrectnessMetric"
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(required=frozenset({P.INPUT, P.TOOLS_CALLED}))

    def __init__(self, **how: Unpack[ReasonOptions]) -> None:
        super().__init__(**how)

    def _judged(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(case.tools_called)

    def _unjudged(self, metric: Any, case: Any) -> str | None:  # noqa: ARG002
        return None if case.tools_called else "the agent called no tool"


def _full_name(wanted: str | ExpectedTool, called: Sequence[str]) -> str:
    """The name as it was called; a part of a name does where the case allows it."""
    if isinstance(wanted, ExpectedTool) and wanted.match == "exact":
        return wanted.name
    name = wanted if isinstance(wanted, str) else wanted.name
    return next((one for one in called if name in one), name)


class JsonCorrectnessEvaluator(DeepEvalEvaluator):
    """The answer is JSON that a schema accepts; the judge is asked only for what is wrong.

    Args:
        schema: The JSON schema, draft 2020-12; it refers to nothing outside of itself.
    """

    metric = "json_correctness"
    kind = "JsonCorrectnessMetric"
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset({P.ACTUAL_OUTPUT}), optional=frozenset({P.INPUT})
    )

    def __init__(self, *, schema: Mapping[str, Any] | None, **how: Unpack[ReasonOptions]) -> None:
        super().__init__(**how)
        if schema is None:
            raise ConfigError("schema", "is missing: say what the answer is to be")
        self._schema = schema
        self._fits = JsonSchemaEvaluator(schema=schema, timeout=None)

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        found = await self._fits.evaluate(response=kwargs[P.ACTUAL_OUTPUT])
        fault = None if found["passed"] else found["reasoning"]
        options = {**self._options(), "expected_schema": _Expected(self._schema, fault)}
        row = await self._measured(self._case(kwargs), options)
        return row if row["reasoning"] else {**row, "reasoning": found["reasoning"]}


class _Expected:
    """What DeepEval asks of a pydantic model, answered from a check that was already made."""

    def __init__(self, schema: Mapping[str, Any], fault: str | None) -> None:
        self._schema = schema
        self._fault = fault

    def model_validate_json(self, _: str) -> None:
        if self._fault is not None:
            error = PydanticCustomError("json_schema", "{fault}", {"fault": self._fault})
            raise ValidationError.from_exception_data("answer", [{"type": error, "input": None}])

    def model_json_schema(self) -> Mapping[str, Any]:
        return self._schema
