"""The text shown while tests run, and the summary at the end; the caller writes it."""

import time
from collections.abc import Callable, Iterator, Sequence

from holodeck.lib.reports.costs import describe_cost
from holodeck.lib.reports.failures import (
    ERROR,
    FAIL,
    MARKS,
    MAX_NAME,
    MAX_REASON,
    NOT_PASSED,
    PASS,
    excerpt_lines,
    recap_failures,
    short_reason,
    shown_name,
    wrapped,
)
from holodeck.lib.reports.summary import model_usage, summarize
from holodeck.lib.support.text import one_line, percent
from holodeck.lib.ui import SpinnerMixin, is_tty
from holodeck.lib.ui.activity import LiveStatus
from holodeck.lib.ui.live import SPARE_COLUMNS
from holodeck.lib.ui.terminal import can_show, width
from holodeck.models.results.origin import Selection
from holodeck.models.results.outcome import Reason
from holodeck.models.test_result import (
    MetricResult,
    Outcome,
    ReportSummary,
    TestReport,
    TestResult,
)

_RULE_COLUMNS = 60
SLOW_S = 3.0
"""The summary of a sequential run that takes longer suggests `-j`."""
_OTHER_COUNTS = (
    ("Flaky", (Outcome.FLAKY,)),
    ("Failed", (Outcome.FAILED,)),
    ("Errors", (Outcome.AGENT_ERROR, Outcome.METRIC_ERROR)),
    ("Unchecked", (Outcome.UNCHECKED,)),
)


class ProgressIndicator(SpinnerMixin):
    """Counts results: pass `start_test` and `update` to the executor, print what the rest returns.

    A terminal gets symbols and colours, other outputs get words; the facts are the same.

    Args:
        total_tests: The number of tests of the run.
        quiet: Show only the failures and the summary.
        verbose: Show times of fast tests, every reason, and every metric in the summary.
        clock: Returns seconds; it must never go back.
    """

    def __init__(
        self,
        total_tests: int,
        quiet: bool = False,
        verbose: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total_tests = total_tests
        self.current_test = 0
        self.passed = 0
        self.failed = 0
        self.skipped = 0
        self.unreached = 0
        self.quiet = quiet
        self.verbose = verbose
        self.selection: Selection | None = None
        """The selected cases; None if all cases run."""
        self.is_one_at_a_time = False
        """Whether the tests run one after the other although no setting says so."""
        self.current_test_name: str | None = None
        self._last: TestResult | None = None
        self._results: list[TestResult] = []
        self._summary: ReportSummary | None = None
        """That of a report; None if it is still to be computed from the results."""
        self._clock = clock
        self._began = clock()
        self.live = LiveStatus()
        """What runs and waits now."""

    @property
    def test_results(self) -> Sequence[TestResult]:
        """The results of `update` so far, in their order; after `end`, those of the report."""
        return self._results

    def start_test(self, test_name: str, runs: int = 1) -> None:
        """Note that a test starts in the present task; several may run at the same time.

        `runs` is how often it is run (`repeat`), which the estimated time takes into account.
        """
        self.current_test_name = test_name
        self.live.start(test_name, runs)

    def update(self, result: TestResult) -> None:
        """Add the result of a test, and keep it for the summary."""
        self._results.append(result)
        self.count(result)

    def end(self, report: TestReport) -> None:
        """Take what the summary is about from the report of the run that was counted."""
        self._results, self._summary = report.results, report.summary
        self.selection = report.selection

    def count(self, result: TestResult) -> None:
        """Count the result of a test that somebody else keeps."""
        self.current_test += 1
        self._last = result
        self.passed += result.passed
        self.skipped += result.skipped_by == "skip"
        self.unreached += result.is_unreached
        self.failed += not result.passed and result.outcome is not Outcome.SKIPPED
        if result.skip_reason is None:  # a skipped test did not start
            self.live.finish(result.title)

    def get_spinner_line(self) -> str:
        """Return `⠋ Test 2/5: Running...`; empty if quiet or not on a terminal."""
        if not is_tty() or self.quiet:
            return ""
        number = min(self.current_test + 1, self.total_tests)
        return f"{self.get_spinner_char()} Test {number}/{self.total_tests}: Running..."

    def get_live_line(self) -> str:
        """Return the rows that move: how far the run is, and what runs; empty if nothing does."""
        if not is_tty() or self.quiet:
            return ""
        ascii_only = not can_show(self.SPINNER_CHARS[0])
        spinner = self.get_spinner_char(ascii_only=ascii_only)
        columns = width() - SPARE_COLUMNS
        return self.live.rows(self._counts(), spinner, columns, ascii_only=ascii_only)

    def get_heartbeat_line(self) -> str:
        """Return a line for logs without other output; empty if quiet."""
        return "" if self.quiet else self.live.log_line(self._counts())

    def _counts(self) -> dict[str, int]:
        return {"done": self.current_test, "failed": self.failed, "total": self.total_tests}

    def get_progress_line(self) -> str:
        """Return the line of the last finished test; empty if quiet or there is none.

        Tests that the run did not reach have no line; the summary counts them.

        `Test 2/5: ✓ name (1.23s)` on a terminal, `[Test 2/5] PASS name (1.23s)` elsewhere.
        """
        result = self._last_to_show()
        if result is None:
            return ""
        counter = f"Test {self.current_test}/{self.total_tests}"
        counter = f"{counter}:" if is_tty() else f"[{counter}]"
        name, mark = shown_name(result), str(MARKS[result.outcome])
        parts = (counter, mark, name, _repetitions(result), self._duration(result))
        return " ".join(part for part in parts if part)

    def get_reason_lines(self) -> list[str]:
        """Return why the last test is not simply passed, indented.

        Unless verbose, the recap at the end says why tests failed.
        """
        result = self._last_to_show()
        if result is None or (result.outcome in NOT_PASSED and not self.verbose):
            return []
        return [line for reason in result.detailed_reasons() for line in _reason_lines(reason)]

    def _last_to_show(self) -> TestResult | None:
        """Return the last result, unless only the summary counts it."""
        last = self._last
        return None if last is None or last.is_unreached or self.quiet else last

    def get_summary(self) -> str:
        """Return the run in a few lines; with `verbose`, also every test and metric."""
        if self.total_tests == 0:
            return "No tests to execute" + (f" ({self.selection})" if self.selection else "")
        rule = "=" * min(_RULE_COLUMNS, width())
        return "\n".join(["", rule, *self._summary_lines(), rule])

    def get_failures(self) -> str:
        """Return the tests that did not pass, grouped by cause; empty if all did.

        A line for each cause if quiet, or if `verbose` has shown the reasons before.
        """
        return recap_failures(self._results, brief=self.quiet or self.verbose)

    def __str__(self) -> str:
        """Return the last progress line, or the summary once all tests are done."""
        finished = self.current_test >= self.total_tests
        return self.get_summary() if finished else self.get_progress_line()

    def _summary_lines(self) -> Iterator[str]:
        ran = self.current_test - self.skipped - self.unreached
        rate = percent(100 * self.passed / ran, 1) if ran else "none ran"
        yield f"{self._verdict()}Test Results: {self.passed}/{ran} passed ({rate})"
        summary = summarize(self._results, 0) if self._summary is None else self._summary
        for title, kinds in _OTHER_COUNTS:
            if count := sum(summary.outcomes.get(kind, 0) for kind in kinds):
                yield f"  {title}: {count}"
        if self.skipped:
            yield f"  Skipped: {self.skipped}"
        if not_run := self.total_tests - self.current_test + self.unreached:
            yield f"  Not run: {not_run}"
        if self.selection is not None:
            yield f"  Selected: {one_line(str(self.selection), MAX_REASON)}"
        yield f"  Duration: {self._elapsed_seconds():.2f}s"
        if self.is_one_at_a_time and ran > 1 and self._elapsed_seconds() >= SLOW_S:
            yield "  One test at a time (not async, or a shared object); try -j N"
        yield from (f"  {title}: {text}" for title, text in model_usage(summary))
        if self.verbose and self.current_test:
            yield from ("", "Test Details:")
            for number, result in enumerate(self.test_results, 1):
                yield from _details(number, result)

    def _verdict(self) -> str:
        if not is_tty():
            return ""
        if 0 < self.passed == self.total_tests - self.skipped:
            return f"{PASS} "
        is_failed = any(result.outcome is Outcome.FAILED for result in self._results)
        return f"{FAIL if is_failed else ERROR} "

    def _duration(self, result: TestResult) -> str:
        elapsed_ms = result.execution_time_ms
        if elapsed_ms >= 1000:
            return f"({elapsed_ms / 1000:.2f}s)"
        return f"({elapsed_ms}ms)" if self.verbose else ""

    def _elapsed_seconds(self) -> float:
        return self._clock() - self._began


def _reason_lines(reason: Reason) -> Iterator[str]:
    yield from (f"    {line}" for line in wrapped(short_reason(reason), 4))
    if reason.raised is not None:
        yield from (f"      {one_line(frame, MAX_REASON)}" for frame in reason.raised.traceback)
        yield from excerpt_lines(reason, "      ")


def _repetitions(result: TestResult) -> str:
    """Return such as `[2/3]`, the repetitions that passed; empty without repetitions."""
    repeats = result.repeats
    return "" if repeats is None else f"[{repeats.passed}/{len(repeats.runs)}]"


def _details(number: int, result: TestResult) -> Iterator[str]:
    name = _short_name(result.test_name) or f"Test {number}"
    yield f"  {MARKS[result.outcome]} {name} ({result.execution_time_ms}ms)"
    if result.cost is not None:
        yield f"      Cost: {describe_cost(result.cost)}"
    for turn_number, turn in enumerate(result.turns, 1):
        yield from _row_lines(turn.metric_results, f"turn {turn_number}: ")
    yield from _row_lines(result.metric_results)
    for row in result.criteria:
        mark = PASS if row.status == "passed" else FAIL
        yield f"      {mark} {_short_name(row.criterion)}: {row.status}{_note(row.required)}"
        if row.reasoning and not row.is_missed:  # else it was among the reasons
            yield f"        Reasoning: {one_line(row.reasoning, MAX_REASON)}"
    for repetition, run in enumerate(result.repeats.runs if result.repeats else (), 1):
        yield from _row_lines(run.metric_results, f"repetition {repetition}: ")


def _row_lines(rows: list[MetricResult], prefix: str = "") -> Iterator[str]:
    for row in rows:
        mark, score = _mark_and_score(row)
        yield f"      {mark} {prefix}{_short_name(row.metric_name)}: {score}{_note(row.required)}"
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


def _short_name(name: str | None) -> str:
    return one_line(name or "", MAX_NAME)
