"""Check after how many turns of the agent a conversation ended with success."""

from holodeck.lib.support.text import plural
from holodeck.lib.test_runner.case_state import CaseState
from holodeck.models.test_result import ToolCheck

_BY_USER_OR_JUDGE = frozenset({"user_done", "judged"})
"""Ends of a conversation that decide nothing themselves, but say that it is over."""


def check_turns_to_done(most: int, state: CaseState) -> ToolCheck:
    """Return the row for `max_turns_to_done` of a conversation that took place.

    It ended with success if its script or its judge says so, or the simulated user was done, and no
    required criterion was missed.
    """
    expectation = f"done within {plural(most, 'turn')} of the agent"
    reason = _reason(most, state)
    return ToolCheck(expectation=expectation, passed=reason is None, reason=reason)


def _reason(most: int, state: CaseState) -> str | None:
    ending, turns = state.ending, len(state.turns)
    missed = [row.criterion for row in state.criteria if row.is_missed]
    if ending is None:
        return "the conversation has no end"
    if missed:
        return f"it ended without success: criterion {missed[0]!r} was missed"
    if not ending.passed and (ending.passed is False or ending.code not in _BY_USER_OR_JUDGE):
        return f"it ended without success: {ending.reasoning or ending.code}"
    if turns > most:
        return f"it took {plural(turns, 'turn')} of the agent instead of at most {most}"
    return None
