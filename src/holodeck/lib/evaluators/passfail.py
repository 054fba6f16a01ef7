"""The metric `passfail`: the tools that were to be called, the text that was to come."""

from collections.abc import Iterator
from typing import Any

from holodeck.lib.evaluators.base import Observation, Score
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.evaluators.scored import ScoredEvaluator, quote

NOTHING_TO_COMPARE = "nothing to compare: the case has neither ground_truth nor expected_tools"


class PassFailEvaluator(ScoredEvaluator):
    """The answer is not blank and holds the case's `ground_truth`, whatever its case, and every
    expected tool that is only a name was called by exactly that name.

    Without a ground truth and expected tools there is nothing to compare, and the row gives no
    verdict.
    """

    metric = "passfail"
    uses_observation = True
    PARAM_SPEC = ParamSpec(frozenset({EvalParam.RESPONSE}), frozenset({EvalParam.GROUND_TRUTH}))

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        seen: Observation | None = kwargs.get("observation")
        wanted = kwargs.get(EvalParam.GROUND_TRUTH)
        if wanted is None and (seen is None or seen.expected_tools is None):
            return self._row(Score(0.0, None, NOTHING_TO_COMPARE))
        wrong = list(_wrong(self._response(kwargs), wanted, seen))
        reason = "; ".join(wrong) or "answer and tool calls are as expected"
        return self._row(Score(float(not wrong), not wrong, reason))


def _wrong(answer: str, wanted: str | None, seen: Observation | None) -> Iterator[str]:
    if not answer.strip():
        yield "the agent answered nothing"
    if wanted is not None and wanted.casefold() not in answer.casefold():
        yield f"{quote(wanted)} is not in {quote(answer)}"
    names = [name for name in (seen and seen.expected_tools) or () if isinstance(name, str)]
    called = {call.name for call in seen.tool_calls} if seen and names else set()
    for name in names:
        if name not in called:
            yield f"no tool called exactly {name!r} was called"
