"""Declares the inputs that an evaluator takes."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class EvalParam(StrEnum):
    """The inputs of evaluators. DeepEval's evaluators have other names for some of them."""

    RESPONSE = "response"
    QUERY = "query"
    GROUND_TRUTH = "ground_truth"
    INPUT = "input"
    ACTUAL_OUTPUT = "actual_output"
    EXPECTED_OUTPUT = "expected_output"
    CONTEXT = "context"
    RETRIEVAL_CONTEXT = "retrieval_context"
    TOOLS_CALLED = "tools_called"
    EXPECTED_TOOLS = "expected_tools"
    TURNS = "turns"
    EXCHANGES = "exchanges"
    TOOLS = "tools"
    IMAGES = "images"


_DEEPEVAL = frozenset({EvalParam.INPUT, EvalParam.ACTUAL_OUTPUT, EvalParam.EXPECTED_OUTPUT})


class ParamSpec(NamedTuple):
    """The inputs that an evaluator requires and those that it can use."""

    required: frozenset[EvalParam]
    optional: frozenset[EvalParam] = frozenset()
    uses_context: bool = False
    uses_retrieval_context: bool = False

    def uses_deepeval_params(self) -> bool:
        """Whether the evaluator uses DeepEval's names, such as `actual_output` for `response`."""
        return not _DEEPEVAL.isdisjoint(self.required | self.optional)


def takes(*required: str, optional: Sequence[str] = ()) -> ParamSpec:
    """Return the spec of an evaluator that takes the inputs of these names."""
    return ParamSpec(frozenset(map(EvalParam, required)), frozenset(map(EvalParam, optional)))
