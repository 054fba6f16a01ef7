"""Which inputs a metric takes, said in data so that they can be gathered for it."""

from enum import StrEnum
from typing import NamedTuple


class EvalParam(StrEnum):
    """The inputs of metrics; two families of names for the same things."""

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


_DEEPEVAL = frozenset({EvalParam.INPUT, EvalParam.ACTUAL_OUTPUT, EvalParam.EXPECTED_OUTPUT})


class ParamSpec(NamedTuple):
    """The inputs that a metric must have and those it can make use of."""

    required: frozenset[EvalParam]
    optional: frozenset[EvalParam] = frozenset()
    uses_context: bool = False
    uses_retrieval_context: bool = False

    def uses_deepeval_params(self) -> bool:
        """Whether the metric speaks of `actual_output` where others say `response`."""
        return not _DEEPEVAL.isdisjoint(self.required | self.optional)
