"""How a conversation ends: results made complete, and results of what broke."""

import traceback
from collections.abc import Iterable

from holodeck.errors import BackendTimeoutError
from holodeck.lib.conversation.result_listeners import framework_outcome
from holodeck.lib.conversation.roles import AgentRole
from holodeck.lib.conversation.time_limits import TimeLimitExceeded
from holodeck.lib.conversation.types import (
    CriterionResult,
    CriterionStatus,
    Participant,
    ScenarioResult,
)
from holodeck.lib.conversation.usage_error import ScenarioUsageError
from holodeck.lib.exceptions import describe, message_of, with_place
from holodeck.lib.text import one_line

MOST_SHOWN = 160

NO_CONCLUSION = (
    "the script ended without a conclusion; end it with one of:\n"
    "- `scenario.proceed()`: let the conversation go on\n"
    "- `scenario.judge()`: ask the judge for its verdict\n"
    "- `scenario.succeed()` or `scenario.fail()`: say the result"
)
NO_VERDICT = "the judge was asked for its verdict and gave none, so nothing is decided"
BROKEN_BY = {
    AgentRole.USER: "simulator_error",
    AgentRole.AGENT: "agent_error",
    AgentRole.JUDGE: "judge_error",
}


def rows_of(result: ScenarioResult) -> list[CriterionResult]:
    """The criteria of a result; made from its lists where a judge gave only those."""
    if result.criteria:
        return result.criteria
    undecided = set(result.inconclusive_criteria)
    failed = [one for one in result.failed_criteria if one not in undecided]
    return [
        *_rows(result.passed_criteria, CriterionStatus.PASSED),
        *_rows(failed, CriterionStatus.FAILED),
        *_rows(result.inconclusive_criteria, CriterionStatus.INCONCLUSIVE),
    ]


def _rows(criteria: Iterable[str], status: CriterionStatus) -> list[CriterionResult]:
    return [CriterionResult(criterion=one, status=status) for one in criteria]


def after_checkpoints(
    checkpoints: list[CriterionResult], result: ScenarioResult
) -> dict[str, object]:
    """The fields of a result that tell of the passed checkpoints, too."""
    passed = [one.criterion for one in checkpoints]
    return {
        "criteria": [*checkpoints, *rows_of(result)],
        "passed_criteria": [*passed, *result.passed_criteria],
    }


def dropped_result_message(against: ScenarioResult) -> str:
    """What is told of a step that keeps a result against the agent to itself."""
    why = one_line(against.reasoning or "failed", MOST_SHOWN)
    return f"it came to a result against the agent and dropped it: {why}; write `return await …`"


def undecided_checkpoint(criteria: Iterable[str]) -> ScenarioResult:
    """The result at a checkpoint whose judge gave no verdict: it did not pass."""
    reasoning = "the judge gave no verdict"
    status = CriterionStatus.INCONCLUSIVE
    rows = [
        CriterionResult(criterion=one, status=status, reasoning=reasoning, is_checkpoint=True)
        for one in criteria
    ]
    texts = [row.criterion for row in rows]
    return ScenarioResult(
        success=False,
        messages=[],
        reasoning="\n".join(f"{one}: {reasoning}" for one in texts),
        failed_criteria=texts,
        inconclusive_criteria=texts,
        criteria=rows,
        reason_code="inconclusive",
    )


def combine_verdicts(first: ScenarioResult, second: ScenarioResult, known: int) -> ScenarioResult:
    """The verdict of a second judge with what another one found before.

    Both tell of the `known` rows of checkpoints.
    """
    told = [one.reasoning for one in (first, second) if one.reasoning]
    found: dict[str, object] = {
        "criteria": [*rows_of(first), *rows_of(second)[known:]],
        "passed_criteria": [*first.passed_criteria, *second.passed_criteria[known:]],
        "reasoning": "\n".join(told) if second.success else second.reasoning,
    }
    return second.model_copy(update=found)


def why_broken(
    error: BaseException, place: str, participant: Participant | None
) -> dict[str, object]:
    """The fields of a result whose run was broken by an error.

    A failed assertion of a step is a failure of the agent, and so is a test that a step or a party
    fails by means of its framework; everything else is an error.
    """
    meaning = framework_outcome(error)
    if meaning == "failed":
        return {"reason_code": "step_failed", "reasoning": f"{place}: {message_of(error)}"}
    if isinstance(error, AssertionError) and participant is None:
        return {"reason_code": "step_failed", "reasoning": f"{place}: {_assertion(error)}"}
    told = describe(error)
    who = f"{type(participant).__name__} raised " if participant is not None else ""
    reasoning = f"{place}: {who}{with_place(error)}"
    if isinstance(error, ScenarioUsageError | TimeLimitExceeded):
        text = message_of(error)
        reasoning = text if text.startswith(place) else f"{place}: {text}"
    code = _code(error, participant) if meaning is None else meaning
    return {"reason_code": code, "reasoning": reasoning, "error": told}


def _code(error: BaseException, participant: Participant | None) -> str:
    if isinstance(error, BackendTimeoutError):
        return "timeout"
    if isinstance(error, ScenarioUsageError):
        return "config"
    return BROKEN_BY[participant.role] if participant is not None else "step_error"


def _assertion(error: AssertionError) -> str:
    if message_of(error):
        return message_of(error)
    frames = traceback.extract_tb(error.__traceback__)
    line = frames[-1].line if frames else ""
    return f"not so: {line}" if line else "an assertion failed"
