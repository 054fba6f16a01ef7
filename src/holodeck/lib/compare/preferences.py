"""Which of two answers a judge prefers, for each pair of a comparison: DeepEval's ArenaGEval."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.judging.agreement import mcnemar_p_value
from holodeck.lib.judging.judge import JsonObject, Judge
from holodeck.lib.llm.model import count_usage
from holodeck.lib.processes.threads import gather_all
from holodeck.lib.support.text import is_blank
from holodeck.models.records.comparison import ComparisonReport, Pair, Preference, Preferences
from holodeck.models.test_result import TestResult

MAX_CONCURRENCY = 20
_MASKS = ("Alice", "Bob")
"""The names under which the judge sees the answers, in their order."""
_SIDES = ("A", "B")


@dataclass(frozen=True)
class Contest:
    """Two answers to the same input."""

    input: str
    answers: tuple[str, str]
    expected: str | None = None
    """The right answer; None if nobody wrote any."""


async def with_preferences(
    report: ComparisonReport, judge: Judge, criteria: str
) -> ComparisonReport:
    """Return the comparison with which answers the judge prefers, each pair asked in both orders.

    Pairs of conversations, and those without two answers, are left out; of a repeated case, the
    first repetition counts. Raises ConfigError if no pair is left.
    """
    contests = {at: _contest(report, pair) for at, pair in enumerate(report.pairs)}
    judged = {at: contest for at, contest in contests.items() if contest is not None}
    if not judged:
        raise ConfigError(
            "--arena",
            "no case has one input and an answer in both runs; a baseline keeps no answers, so name"
            " two recorded runs or reports",
        )
    arena, slots = ArenaJudge(judge, criteria), asyncio.Semaphore(MAX_CONCURRENCY)

    async def prefer(contest: Contest) -> Preference:
        async with slots:
            return await arena.prefer(contest)

    (_, first), *others = judged.items()
    with count_usage() as usage:
        # The steps that the judge derives from the criteria for the first are those of all.
        preferences = [await prefer(first)]
        preferences += await gather_all(prefer(contest) for _, contest in others)
    by_index = dict(zip(judged, preferences, strict=True))
    counts = Counter(preference.winner for preference in preferences)
    decided = counts["first"] + counts["second"]
    return report.model_copy(
        update={
            "pairs": [
                pair.model_copy(update={"preference": by_index.get(at)})
                for at, pair in enumerate(report.pairs)
            ],
            "preferences": Preferences(
                criteria=criteria,
                judge=judge.name,
                first=counts["first"],
                second=counts["second"],
                none=counts["none"],
                undecided=counts["undecided"],
                left_out=len(contests) - len(judged),
                p_value=mcnemar_p_value(counts["first"], counts["second"]) if decided else None,
                judge_calls=usage.requests,
                judge_tokens=usage.usage,
            ),
        }
    )


def _contest(report: ComparisonReport, pair: Pair) -> Contest | None:
    """Return the two answers of a pair; None if either is missing."""
    if pair.first_at is None or pair.second_at is None:
        return None
    first = _single_answer(report.first.report.results[pair.first_at])
    second = _single_answer(report.second.report.results[pair.second_at])
    if first is None or second is None or first.test_input != second.test_input:
        return None
    answers = (first.agent_response or "", second.agent_response or "")
    return Contest(pair.input, answers, second.ground_truth or first.ground_truth)


def _single_answer(result: TestResult) -> TestResult | None:
    """Return the result of the first repetition; None if it is no answer to one input."""
    single = result if result.repeats is None else result.repeats.runs[0]
    is_answer = single.agent_response is not None and not is_blank(single.test_input)
    return single if is_answer and not single.turns else None


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
