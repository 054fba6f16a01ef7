"""DeepEval's ArenaGEval: which of two answers to the same input fulfils criteria better."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.judging.judge import JsonObject, Judge
from holodeck.models.records.comparison import Preference

_MASKS = ("Alice", "Bob")
"""The names under which the judge sees the answers, in their order."""
_SIDES = ("A", "B")


@dataclass(frozen=True)
class Contest:
    """Two answers to the same input."""

    input: str
    answers: tuple[str, str]
    expected: str | None = None
    """The right answer; None if nobody wrote one."""


class ArenaJudge:
    """Compares answers with ArenaGEval, each pair in both orders.

    Args:
        judge: The model that judges.
        criteria: What makes an answer the better one. The judge derives steps from it once.
    """

    def __init__(self, judge: Judge, criteria: str) -> None:
        adapter.require_deepeval("'--arena'")
        self._judge = judge
        self._criteria = criteria
        self._steps: list[str] | None = None

    async def prefer(self, contest: Contest) -> Preference:
        """Return which answer the judge prefers in both orders; an error leaves it undecided."""
        try:
            await adapter.load()
            choices = [await self._choose(contest, order) for order in ((0, 1), (1, 0))]
        except EvaluationError as error:
            return Preference(winner="undecided", reason=str(error))
        (winner, reason), (other, other_reason) = choices
        if winner == other:
            return Preference(winner=winner, reason=reason)
        return Preference(
            winner="none",
            reason=f"the choice changed with the order: {reason}; {other_reason}",
        )

    async def _choose(self, contest: Contest, order: tuple[int, int]) -> tuple[Any, str]:
        """Return `first` or `second`, and the judge's reason. Raises EvaluationError."""
        library, template = adapter.library(), _FixedOrder(order)
        kinds = library.cases.SingleTurnParams
        params = [kinds.INPUT, kinds.ACTUAL_OUTPUT]
        params += [] if contest.expected is None else [kinds.EXPECTED_OUTPUT]
        measurement = adapter.Measurement(
            library.metrics.ArenaGEval,
            self._judge,
            {
                "name": "preference",
                "evaluation_params": params,
                "criteria": self._criteria,
                "evaluation_steps": self._steps,
                "evaluation_template": template,
            },
        )
        await measurement.run(_arena_case(contest), _require_winner)
        metric = measurement.metric
        self._steps = metric.evaluation_steps
        return ("first", "second")[_SIDES.index(metric.winner)], str(metric.reason)


def _require_winner(answer: JsonObject) -> None:
    if "winner" in answer and answer["winner"] not in _MASKS:
        raise ValueError(f"'winner' is {answer['winner']!r}; write {' or '.join(_MASKS)}")


def _arena_case(contest: Contest) -> Any:
    cases = adapter.library().cases
    expected = None if contest.expected is None else adapter.clean_text(contest.expected)
    contestants = [
        cases.Contestant(
            name=side,
            test_case=cases.LLMTestCase(
                input=adapter.clean_text(contest.input),
                actual_output=adapter.clean_text(answer),
                expected_output=expected,
            ),
        )
        for side, answer in zip(_SIDES, contest.answers, strict=True)
    ]
    return cases.ArenaTestCase(contestants=contestants)


class _FixedOrder:
    """The prompt of ArenaGEval with the answers in a fixed order, under fixed names.

    DeepEval would shuffle both, and one contest in a random order shows nothing of its bias.
    """

    def __init__(self, order: Sequence[int]) -> None:
        self._sides = [_SIDES[at] for at in order]

    def generate_arena_winner(self, *, test_case_contents: Any, **context: Any) -> str:
        masks: dict[str, str] = test_case_contents.dummy_to_real_names
        masks.clear()
        masks.update(zip(_MASKS, self._sides, strict=True))
        parts: Mapping[str, Any] = {
            "input": test_case_contents.input,
            "expected_output": test_case_contents.expected_output,
            "arena_test_cases": {
                mask: repr(test_case_contents.contestants[side]) for mask, side in masks.items()
            },
        }
        contents = {key: value for key, value in parts.items() if value is not None}
        return adapter.arena_prompt(**context, test_case_contents=json.dumps(contents, indent=2))
