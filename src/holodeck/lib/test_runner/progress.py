"""What is shown of a run: lines, or a bar in a notebook, while it goes on, and a summary."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, Literal, TextIO

from holodeck.lib.reports.failures import NOT_PASSED
from holodeck.lib.reports.summary import model_usage, summarize
from holodeck.lib.reports.terminal import (
    ERROR,
    FAIL,
    MARKS,
    MAX_REASON,
    PASS,
    detail_lines,
    excerpt_lines,
    recap_failures,
    short_reason,
    shown_name,
    wrapped,
)
from holodeck.lib.support.text import one_line, percent
from holodeck.lib.ui import SpinnerMixin, is_tty
from holodeck.lib.ui.activity import LiveStatus, displayed
from holodeck.lib.ui.live import SPARE_COLUMNS, LiveLine
from holodeck.lib.ui.terminal import can_show, width
from holodeck.models.results.origin import Selection
from holodeck.models.results.outcome import Reason
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome, ReportSummary, TestReport, TestResult, case_label

_RULE_COLUMNS = 60
_REDRAW_S = 0.2
"""The shortest time between two updates of a notebook, which travel over a network."""
_TICK_S = 1.0
"""The longest time, so that the seconds go on while a test runs."""
_MAX_STATE = 60
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
        """Add the result of a test, and keep it for the summary.

        Of an object that is no TestResult, its name, verdict, time and errors count.
        """
        result = _result_of(result)
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
        """Return the line of the last finished test; empty if there is none.

        If quiet, only the last test of the run has one.
        Tests that the run did not reach have no line; the summary counts them.

        `Test 2/5: ✓ name (1.23s)` on a terminal, `[Test 2/5] PASS name (1.23s)` elsewhere. After
        the name of a repeated test is such as `[2/3]`, the repetitions that passed.
        """
        result = self._last_to_show()
        if result is None or (self.quiet and self.current_test < self.total_tests):
            return ""
        counter = f"Test {self.current_test}/{self.total_tests}"
        counter = f"{counter}:" if is_tty() else f"[{counter}]"
        name, mark, repeats = shown_name(result), str(MARKS[result.outcome]), result.repeats
        repeated = "" if repeats is None else f"[{repeats.passed}/{len(repeats.runs)}]"
        parts = (counter, mark, name, repeated, self._duration(result))
        return " ".join(part for part in parts if part)

    def get_reason_lines(self) -> list[str]:
        """Return why the last test is not simply passed, indented.

        Unless verbose, the recap at the end says why tests failed.
        """
        result = self._last_to_show()
        if result is None or self.quiet or (result.outcome in NOT_PASSED and not self.verbose):
            return []
        return [line for reason in result.detailed_reasons() for line in _reason_lines(reason)]

    def _last_to_show(self) -> TestResult | None:
        """Return the last result, unless only the summary counts it."""
        last = self._last
        return None if last is None or last.is_unreached else last

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
                yield from detail_lines(number, result)

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


_READ = {"test_name": str, "test_input": str, "execution_time_ms": int, "errors": list}
"""What is read of an object that stands for a result."""


def _result_of(given: TestResult) -> TestResult:
    """Return a result, or one with what is known of an object that stands for it."""
    if issubclass(type(given), TestResult):  # not `isinstance`, which a mock with a spec passes
        return given
    known = {
        name: value
        for name, kind in _READ.items()
        if isinstance(value := getattr(given, name, None), kind)
    }
    rest = {"test_input": "", "execution_time_ms": 0, "timestamp": ""}
    return TestResult(**{**rest, **known, "passed": bool(given.passed)})


def _reason_lines(reason: Reason) -> Iterator[str]:
    yield from (f"    {line}" for line in wrapped(short_reason(reason), 4))
    if reason.raised is not None:
        yield from (f"      {one_line(frame, MAX_REASON)}" for frame in reason.raised.traceback)
        yield from excerpt_lines(reason)


class RunDisplay:
    """Follows a run and shows nothing of it.

    Args:
        redact: Hides secrets in names of cases.
        quiet: Whether only failures and the summary are shown.
        verbose: Whether every reason and metric is shown.
    """

    def __init__(
        self, redact: Callable[[str], str], *, quiet: bool = False, verbose: bool = False
    ) -> None:
        self.progress = ProgressIndicator(0, quiet=quiet, verbose=verbose)
        self._redact = redact
        self._repeats: list[int] = []

    def add_cases(self, cases: Sequence[TestCaseModel], known: Mapping[int, TestResult]) -> None:
        """Add the cases of an agent; `known` are results of an earlier run, by index."""
        live = self.progress.live
        self._repeats = [case.repeat or 1 for case in cases]
        self.progress.total_tests += len(cases)
        for result in known.values():
            self.progress.count(result)
        live.waiting_runs = (live.waiting_runs or 0) + sum(
            runs
            for index, runs in enumerate(self._repeats)
            if index not in known and cases[index].skip is None
        )

    def start_test(self, case: TestCaseModel) -> None:
        """Show that a case runs."""
        name = self._redact(case.name) if case.name else None
        label = name or case_label(None, self._redact(case.user_input))
        self.progress.start_test(label, case.repeat or 1)

    def update(self, index: int, result: TestResult) -> None:
        """Show the result of the case at that index, which holds no secrets."""
        self.progress.count(result)
        live = self.progress.live
        if result.is_unreached and live.waiting_runs:
            live.waiting_runs -= self._repeats[index]

    def write(self, lines: Sequence[str]) -> None:
        """Write what is known of a result, if the display has lines."""

    @contextmanager
    def shown(self, out: TextIO | None = None) -> Iterator[None]:  # noqa: ARG002 - see TextDisplay
        """Show the run until the block ends, on `out` in place of stdout."""
        yield


def choose_display(progress: bool | None, redact: Callable[[str], str]) -> RunDisplay:
    """Return how to show a run that Python code started.

    `progress` None means only where a person looks on: in a notebook and in the IPython shell.
    """
    frontend = detect_frontend()
    if progress is False or (progress is None and frontend == "script"):
        return RunDisplay(redact)
    return NotebookDisplay(redact) if frontend == "notebook" else TextDisplay(redact)


class TextDisplay(RunDisplay):
    """A line for each finished test, and on a terminal what runs now.

    Args:
        is_live: Whether lines may be redrawn, which would disturb a person who types.
    """

    def __init__(
        self,
        redact: Callable[[str], str],
        *,
        quiet: bool = False,
        verbose: bool = False,
        is_live: bool = True,
    ) -> None:
        super().__init__(redact, quiet=quiet, verbose=verbose)
        self._is_live = is_live and not quiet
        self._line: LiveLine | None = None

    def write(self, lines: Sequence[str]) -> None:
        if lines and self._line is not None:
            self._line.write("\n".join(lines))

    @contextmanager
    def shown(self, out: TextIO | None = None) -> Iterator[None]:
        progress = self.progress
        progress.live.redact = self._redact
        token = displayed.set(progress.live.activities)
        self._line = LiveLine(
            progress.get_live_line, progress.get_heartbeat_line, out=out, enabled=self._is_live
        )
        try:
            with self._line:
                yield
        finally:
            displayed.reset(token)


class NotebookDisplay(RunDisplay):
    """A bar with counts and the running test, updated in place."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__(redact)
        self._output: Any = None
        """The output of the cell; None before the run."""
        self._started = self._drawn = 0.0

    def start_test(self, case: TestCaseModel) -> None:
        super().start_test(case)
        self._redraw()

    def update(self, index: int, result: TestResult) -> None:
        super().update(index, result)
        self._redraw()

    @contextmanager
    def shown(self, out: TextIO | None = None) -> Iterator[None]:  # noqa: ARG002 - see TextDisplay
        from IPython.display import display

        self._started = time.monotonic()
        self._output = display({"text/plain": ""}, raw=True, display_id=True)
        self._draw(self._status())
        ticks = asyncio.get_running_loop().create_task(self._tick())
        state = "stopped"
        try:
            yield
            state = "done"
        finally:
            ticks.cancel()
            self._draw(self._status(state))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._redraw()

    def _redraw(self) -> None:
        """Draw, unless it was drawn just now: the end draws again in any case."""
        if time.monotonic() - self._drawn >= _REDRAW_S:
            self._draw(self._status(f"running {self.progress.current_test_name or ''}"))

    def _status(self, state: str = "starting") -> str:
        """Return such as `3 of 10 tests, 1 failed, 4 s: running 'greets'`."""
        shown = self.progress
        counts = [f"{shown.current_test} of {shown.total_tests} tests"]
        counts += [f"{shown.failed} failed"] if shown.failed else []
        counts.append(f"{time.monotonic() - self._started:.0f} s")
        return f"{', '.join(counts)}: {one_line(state, _MAX_STATE)}"

    def _draw(self, status: str) -> None:
        self._drawn = time.monotonic()
        if self._output is None:
            return
        done, total = self.progress.current_test, max(self.progress.total_tests, 1)
        bar = f'<progress value="{done}" max="{total}"></progress> {escape(status)}'
        self._output.update({"text/plain": status, "text/html": bar}, raw=True)


Frontend = Literal["notebook", "ipython", "script"]


def detect_frontend() -> Frontend:
    """Return where the code runs; IPython is not imported, as only a running shell counts."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return "script"
    classes = {kind.__name__ for kind in type(shell).__mro__}
    # Kernels of notebooks derive from this, those of hosted notebooks included.
    return "notebook" if "ZMQInteractiveShell" in classes else "ipython"
