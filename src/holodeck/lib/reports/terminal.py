"""What the end of a run lists in a terminal: the tests that did not pass, and what was measured.

Texts are printable lines; a terminal gets symbols and colours, other outputs get words.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holodeck.lib.reports.costs import describe_cost
from holodeck.lib.reports.failures import (
    Failure,
    FailureGroup,
    distinct_reasons,
    explain,
    group_failures,
)
from holodeck.lib.reports.locations import short_location
from holodeck.lib.support.text import clip, columns_of, one_line, plural, shorten_list, wrap
from holodeck.lib.ui.terminal import ANSIColors, can_show, colorize, is_tty, width
from holodeck.models.results.outcome import Outcome, Reason
from holodeck.models.test_result import MetricResult, TestResult

MAX_NAME = 120
MAX_REASON = 300
MAX_REASONS = 3
_MAX_NAMED = 3
"""Cases of a group that are named."""
_MIN_COLUMNS = 20
_MIN_NAME = 8


class Mark(NamedTuple):
    """How a result is marked: a word, on a terminal a symbol, and its color."""

    word: str
    symbol: str
    color: str

    def __str__(self) -> str:
        # Colours can be forced without a terminal, for example in the log of a CI job.
        return colorize(self.text, self.color)

    @property
    def text(self) -> str:
        """The symbol, where it can be shown, else the word."""
        return self.symbol if is_tty() and can_show(self.symbol) else self.word


PASS = Mark("PASS", "✓", ANSIColors.GREEN)
FAIL = Mark("FAIL", "✗", ANSIColors.RED)
ERROR = Mark("ERROR", "⚠", ANSIColors.YELLOW)
MARKS = {
    Outcome.PASSED: PASS,
    Outcome.FAILED: FAIL,
    Outcome.AGENT_ERROR: ERROR,
    Outcome.METRIC_ERROR: ERROR,
    Outcome.UNCHECKED: Mark("UNCHECKED", "?", ANSIColors.YELLOW),
    Outcome.FLAKY: Mark("FLAKY", "≈", ANSIColors.YELLOW),
    Outcome.SKIPPED: Mark("SKIPPED", "-", ANSIColors.YELLOW),
}


def shown_name(result: TestResult) -> str:
    """Return the label of a test on a printable line."""
    return one_line(result.title, MAX_NAME)


def short_reason(reason: Reason, limit: int = MAX_REASON) -> str:
    """Return the reason on a single line; shortening keeps the location of an error."""
    if reason.raised is None:
        return one_line(reason.text, limit)
    location = one_line(reason.raised.location, limit // 2)
    return f"{one_line(reason.text, limit - len(location) - 3)} ({location})"


def excerpt_lines(reason: Reason) -> Iterator[str]:
    """Yield the lines of the user's code around the line that raised, each on a row."""
    if reason.raised is not None:
        yield from (clip(f"      {line}", _columns()) for line in reason.raised.excerpt)


def recap_failures(results: Sequence[TestResult], *, brief: bool) -> str:
    """Return the tests that did not pass, those of the same cause together; empty if all passed.

    Args:
        results: The results of the run.
        brief: One line for each cause, instead of its reasons, what was expected and what found.
    """
    groups = group_failures(results)
    if not groups:
        return ""
    render = _brief_line if brief else _lines
    return "\n".join(["", "Failures:", *(line for group in groups for line in render(group))])


def _brief_line(group: FailureGroup) -> Iterator[str]:
    """Yield such as `  FAIL greets (agent.yaml:4) and 2 more: contains: 0.00`."""
    columns = _columns()
    mark = MARKS[group.outcome]
    more = f" and {len(group.numbers) - 1} more" if group.numbers[1:] else ""
    first = group.first
    used = columns_of(f"  {mark.text} : {more}")
    name = _place(first, columns // 2)
    room = columns - used - columns_of(name)
    reason = "".join(short_reason(distinct, room) for distinct in distinct_reasons(first)[:1])
    yield f"  {mark} {name}{more}" + (f": {clip(reason, room)}" if reason else "")


def _lines(group: FailureGroup) -> Iterator[str]:
    """Yield the cases, then the reasons, then what was expected and found."""
    cases = [_place(result, MAX_NAME) for result in group.results[:_MAX_NAMED]]
    count = f"{plural(len(group.numbers), 'case')}: " if cases[1:] else ""
    names = shorten_list(cases, _MAX_NAMED, count=len(group.numbers))
    mark = MARKS[group.outcome]
    head, *rest = wrapped(f"{count}{names}", 3 + len(mark.text))
    yield f"  {mark} {head}"
    yield from (f"    {line}" for line in rest)
    room = MAX_REASONS
    hidden = 0
    for failure in explain(group.first):
        shown = failure.reasons[:room]
        room -= len(shown)
        hidden += len(failure.reasons) - len(shown)
        if shown or not failure.reasons:
            whose = f" ({shown_name(group.first)})" if cases[1:] else ""
            yield from _failure_lines(failure, shown, whose)
    if hidden:
        yield f"    … and {plural(hidden, 'more reason')} (--verbose shows all)"


def _failure_lines(failure: Failure, shown: Sequence[Reason], whose: str) -> Iterator[str]:
    """Yield the reasons, then the ground truth and the response unless a reason quotes them.

    `whose` names their case if it is among several.
    """
    for reason in shown:
        yield from (f"    {line}" for line in wrapped(short_reason(reason), 4))
        yield from excerpt_lines(reason)
    for title, text in failure.unquoted(" ".join(reason.text for reason in shown)):
        line = f"{title}{whose}: {one_line(text, MAX_REASON) or '(empty)'}"
        yield from (f"    {row}" for row in wrapped(line, 4))


def _place(result: TestResult, columns: int) -> str:
    """Return the name and, if there is room, the place of a case."""
    location = short_location(result.location)
    place = "" if location is None else f" ({one_line(location, MAX_NAME)})"
    if columns_of(place) > columns - _MIN_NAME:
        place = ""
    return clip(shown_name(result), columns - columns_of(place)) + place


def wrapped(text: str, indent: int) -> list[str]:
    """Return the lines of `text` on a terminal; elsewhere, `text` is a single line."""
    return wrap(text, _columns() - indent) if is_tty() else [text]


def _columns() -> int:
    return max(width(), _MIN_COLUMNS) if is_tty() else MAX_REASON


def detail_lines(number: int, result: TestResult) -> Iterator[str]:
    """Yield everything that was measured of a test; `number` counts from 1."""
    name = one_line(result.test_name or "", MAX_NAME) or f"Test {number}"
    yield f"  {MARKS[result.outcome]} {name} ({result.execution_time_ms}ms)"
    if result.cost is not None:
        yield f"      Cost: {describe_cost(result.cost)}"
    stubbed = [f"{call.full_name} ({call.stub})" for call in result.tool_invocations if call.stub]
    if stubbed:
        yield f"      Stubbed: {one_line(', '.join(stubbed), MAX_REASON)}"
    requests = enumerate(result.handled_requests, 1)
    faulty = [f"request {at} ({request})" for at, request in requests if request.faults]
    if faulty:
        yield f"      Model: {one_line(', '.join(faulty), MAX_REASON)}"
    for turn_number, turn in enumerate(result.turns, 1):
        yield from _row_lines(turn.metric_results, f"turn {turn_number}: ")
    yield from _row_lines(result.metric_results)
    for row in result.criteria:
        mark = PASS if row.status == "passed" else FAIL
        yield f"      {mark} {one_line(row.criterion, MAX_NAME)}: {row.status}{_note(row.required)}"
        if row.reasoning and not row.is_missed:  # else it was among the reasons
            yield f"        Reasoning: {one_line(row.reasoning, MAX_REASON)}"
    for repetition, run in enumerate(result.repeats.runs if result.repeats else (), 1):
        yield from _row_lines(run.metric_results, f"repetition {repetition}: ")


def _row_lines(rows: list[MetricResult], prefix: str = "") -> Iterator[str]:
    for row in rows:
        mark, score = _mark_and_score(row)
        name = one_line(row.metric_name, MAX_NAME)
        yield f"      {mark} {prefix}{name}: {score}{_note(row.required)}"
        if row.reasoning and not (row.required and row.passed is False):
            yield f"        Reasoning: {one_line(row.reasoning, MAX_REASON)}"
        if row.note:
            yield f"        Note: {one_line(row.note, MAX_REASON)}"


def _note(required: bool) -> str:
    return "" if required else " (reported only)"


def _mark_and_score(row: MetricResult) -> tuple[str, str]:
    if row.error is not None:
        return str(ERROR), f"ERROR: {one_line(row.error, MAX_REASON)}"
    mark = "-" if row.passed is None else str(PASS if row.passed else FAIL)
    score = "not computed" if row.score is None else f"{row.score:.2f}"
    return mark, score if row.threshold is None else f"{score} (threshold: {row.threshold:.2f})"
