"""From what was seen to how a test ended."""

from collections.abc import Collection, Sequence

from holodeck.lib.test_runner.grading import Check
from holodeck.models.test_result import MetricResult, Outcome, ToolCheck


def decide_outcome(
    faults: Sequence[str],
    tool_checks: Sequence[ToolCheck],
    rows: Sequence[MetricResult],
    checks: Sequence[Check],
) -> Outcome:
    """How a test ended whose agent could be run; `faults` are what the agent did wrong by itself.

    What is decided outranks what is not; nothing passes that nothing could have failed. Rows that
    are not required decide nothing.
    """
    rows = [row for row in rows if row.required]
    failed = [row for row in rows if row.passed is False]
    final = {check.name for check in checks if check.fail_on_error}
    broken = [row for row in failed if row.error is not None and row.metric_name not in final]
    unsure = [row for row in rows if row.inconclusive]
    if faults or len(failed) > len(broken):
        return Outcome.FAILED
    if any(not check.passed and check.error is None for check in tool_checks):
        return Outcome.FAILED
    if any(row.metric_name in final for row in unsure):
        return Outcome.FAILED
    if broken or unsure or any(check.error for check in tool_checks):
        return Outcome.METRIC_ERROR
    decided = tool_checks or any(row.passed is not None for row in rows)
    return Outcome.PASSED if decided else Outcome.UNCHECKED


_DECIDING_FIRST = (Outcome.FAILED, Outcome.METRIC_ERROR, Outcome.PASSED)


def combine_outcomes(outcomes: Collection[Outcome]) -> Outcome:
    """How a conversation ended whose parts ended so."""
    return next((one for one in _DECIDING_FIRST if one in outcomes), Outcome.UNCHECKED)
