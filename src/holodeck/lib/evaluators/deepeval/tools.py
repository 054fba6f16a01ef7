"""Metrics about tool calls."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.base import DeepEvalEvaluator, ReasonOptions
from holodeck.lib.evaluators.param_spec import EvalParam as P
from holodeck.lib.evaluators.param_spec import ParamSpec
from holodeck.lib.judging.judge import Judge
from holodeck.models.test_case import ExpectedTool


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
