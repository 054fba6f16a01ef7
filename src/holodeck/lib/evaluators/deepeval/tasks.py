"""Metrics about a task: whether it was done, and done as told."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

from holodeck.errors import ConfigError
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.base import (
    DeepEvalEvaluator,
    JudgeOptions,
    ReasonOptions,
    require_count,
    require_range,
)
from holodeck.lib.evaluators.param_spec import EvalParam as P
from holodeck.lib.evaluators.param_spec import ParamSpec
from holodeck.lib.judging.judge import JsonObject
from holodeck.models.evidence import UNSEEN_CALLS

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
