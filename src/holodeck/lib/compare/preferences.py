"""Which of two answers a judge prefers, for each pair of a comparison."""

import asyncio
from collections import Counter

from holodeck.errors import ConfigError
from holodeck.lib.evaluators.base import gather_all
from holodeck.lib.evaluators.deepeval.arena import ArenaJudge, Contest
from holodeck.lib.judging.agreement import mcnemar_p_value
from holodeck.lib.judging.judge import Judge, count_judge_usage
from holodeck.lib.support.text import is_blank
from holodeck.models.records.comparison import ComparisonReport, Pair, Preference, Preferences
from holodeck.models.test_result import TestResult

MAX_CONCURRENCY = 20


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
    with count_judge_usage() as usage:
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
    """Return the two answers of a pair; None if one of both is missing."""
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
