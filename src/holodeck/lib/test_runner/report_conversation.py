"""The part of the Markdown report that tells how a conversation ended and what the judge said."""

from collections.abc import Iterator

from holodeck.lib.conversation.messages import transcript_of
from holodeck.lib.test_runner.markdown import fenced, inline, table
from holodeck.lib.text import plural
from holodeck.models.outcome import CriterionRow, ModelCost
from holodeck.models.test_result import TestResult

_TEXT_LIMIT = 500


def transcript_section(result: TestResult, mark: str) -> Iterator[str]:
    """Everything that was said, where the turns do not tell all of it."""
    if result.messages:
        yield from (f"{mark} Transcript", "", *fenced(transcript_of(result.messages)), "")


def conclusion_section(result: TestResult, mark: str) -> Iterator[str]:
    """The ending, the verdicts on the criteria, and what they cost."""
    if result.ending is not None:
        words = result.ending.reasoning or result.ending.code.replace("_", " ")
        yield from (f"**Ended:** {inline(words, _TEXT_LIMIT)}", "")
    yield from _criteria(result.criteria, mark)
    costs = (("Judge", result.judge_cost), ("Simulated user", result.simulator_cost))
    lines = [_cost(who, cost) for who, cost in costs if cost is not None]
    if lines:
        yield from (*lines, "")


def _criteria(rows: list[CriterionRow], mark: str) -> Iterator[str]:
    if not rows:
        return
    yield from (f"{mark} Criteria", "")
    cells = [(inline(row.criterion, _TEXT_LIMIT), _status(row)) for row in rows]
    yield from (*table(("Criterion", "Status"), cells), "")
    for row in rows:
        if row.reasoning:
            yield from (f"{mark}# {inline(row.criterion)}", "")
            yield from ("Reasoning:", "", *fenced(row.reasoning), "")


def _status(row: CriterionRow) -> str:
    if row.status == "passed":
        return "✅ pass"
    words = "fail" if row.status == "failed" else row.status
    return f"❌ {words}" if row.required else f"{words}, reported only"


def _cost(who: str, cost: ModelCost) -> str:
    tokens = plural(cost.tokens.total_tokens, "token")
    kept = f", {plural(cost.kept, 'answer')} kept from an earlier run" if cost.kept else ""
    calls = plural(cost.calls, "call")
    calls += f" ({cost.failed} not answered)" if cost.failed else ""
    return f"- **{who}:** {inline(cost.model or '–')}, {calls}{kept}, {tokens}"


def calls_in_words(calls: int, failed: int) -> str:
    """How many calls there were, and how many of them got no answer."""
    return f"{calls} ({failed} not answered)" if failed else str(calls)
