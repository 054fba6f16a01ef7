"""Grade a conversation, be it just held or recorded: each turn, then the whole."""

import asyncio
from collections.abc import Callable, MutableSequence, Sequence
from functools import partial, reduce
from itertools import accumulate
from operator import and_

from holodeck.lib.evaluators.base import Turn
from holodeck.lib.test_runner.grading import Check, grade
from holodeck.lib.test_runner.observer import AgentOutput, Observer
from holodeck.lib.test_runner.tool_checks import check_tools
from holodeck.lib.test_runner.verdict import combine_outcomes, decide_outcome
from holodeck.models.test_case import TestCaseModel, TurnModel
from holodeck.models.test_result import MetricResult, Outcome, TurnResult


async def grade_turns(
    case: TestCaseModel,
    turns: Sequence[TurnResult],
    checks: Sequence[Sequence[Check]],
    observer: Observer,
    before: tuple[Turn, ...] = (),
    keep: Callable[[list[TurnResult]], None] = lambda _: None,
) -> list[TurnResult]:
    """The turns of the case with rows and verdicts; each is graded by what was said until then.

    `before` is what was said before the first of them. `keep` is told the turns as far as they are
    graded should they not be waited for any more.
    """
    said = list(accumulate(map(turn_messages, turns), initial=before))[1:]
    graded = list(turns)
    parts = zip(case.turns or (), turns, checks, said, strict=True)
    try:
        for at, (asked, turn, own, until) in enumerate(parts):
            fill = partial(graded.__setitem__, at)
            fill(await _graded(asked, turn, own, observer, until, case.name, fill))
    except asyncio.CancelledError:
        keep(graded)
        raise
    return graded


def finished_turn(turn: TurnResult) -> TurnResult:
    """The turn of a conversation that was played: its checks are made, but it may be wrong."""
    if turn.outcome is Outcome.AGENT_ERROR or not turn.errors:
        return turn
    return turn.model_copy(update={"outcome": Outcome.FAILED})


async def check_last_turn(
    asked: TurnModel,
    turns: MutableSequence[TurnResult],
    checks: Sequence[Check],
    observer: Observer,
    name: str | None,
    before: tuple[Turn, ...] = (),
) -> Outcome:
    """How one more check of the last of the turns ended; what it finds is added to that turn."""
    last = turns[-1]
    until = (*before, *(one for turn in turns for one in turn_messages(turn)))

    def add(found: TurnResult) -> None:
        turns[-1] = _with_check(last, found, checks)

    found = await _graded(asked, last, checks, observer, until, name, add)
    add(found)
    return decide_outcome([], found.tool_checks, found.metric_results, checks)


def _with_check(last: TurnResult, found: TurnResult, checks: Sequence[Check]) -> TurnResult:
    """The turn with what a check has found besides what is known of it."""
    of_check = decide_outcome([], found.tool_checks, found.metric_results, checks)
    known = [last.outcome] if last.outcome is not None else []
    update = {
        "expected_tools": found.expected_tools or last.expected_tools,
        "tool_checks": [*last.tool_checks, *found.tool_checks],
        "metric_results": [*last.metric_results, *found.metric_results],
        "ground_truth": found.ground_truth or last.ground_truth,
        "outcome": combine_outcomes([*known, of_check]),
    }
    return last.model_copy(update=update)


def whole_conversation(turns: Sequence[TurnResult], before: tuple[Turn, ...] = ()) -> AgentOutput:
    """What metrics about the whole conversation see: the last answer, and everything before it."""
    took = [turn.agent_time_ms for turn in turns if turn.agent_time_ms is not None]
    return AgentOutput(
        response=turns[-1].agent_response or "",
        invocations=[call for turn in turns for call in turn.tool_invocations],
        files=[file for turn in turns for file in turn.processed_files],
        agent_ms=sum(took) if took else None,
        evidence=reduce(and_, [turn.evidence for turn in turns]),
        turns=(*before, *(one for turn in turns for one in turn_messages(turn))),
    )


def turn_messages(turn: TurnResult) -> tuple[Turn, ...]:
    """What the user and the agent said in a turn."""
    known = turn.evidence.tool_calls is not None
    calls = tuple(turn.tool_invocations) if known else None
    return Turn("user", turn.input), Turn("assistant", turn.agent_response or "", calls)


async def _graded(
    asked: TurnModel,
    turn: TurnResult,
    checks: Sequence[Check],
    observer: Observer,
    until: tuple[Turn, ...],
    name: str | None,
    keep: Callable[[TurnResult], None],
) -> TurnResult:
    seen = AgentOutput(
        turn.agent_response or "",
        turn.tool_invocations,
        turn.processed_files,
        turn.agent_time_ms,
        turn.evidence,
        until,
    )
    tool_checks = check_tools(asked, turn.tool_invocations, turn.evidence)

    def with_rows(rows: list[MetricResult]) -> TurnResult:
        update = {
            "expected_tools": asked.expected_tools,
            "tool_checks": tool_checks,
            "metric_results": rows,
            "ground_truth": asked.ground_truth,
            "outcome": decide_outcome(turn.errors, tool_checks, rows, checks),
        }
        return turn.model_copy(update=update)

    observation = observer.observation(asked, seen, name)
    return with_rows(await grade(checks, observation, lambda rows: keep(with_rows(rows))))
