"""Shows a run while it goes on: in place in a notebook, as lines elsewhere, or not at all."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, Literal, TextIO

from holodeck.lib.support.text import one_line
from holodeck.lib.test_runner.progress import ProgressIndicator
from holodeck.lib.ui.activity import displayed
from holodeck.lib.ui.live import LiveLine
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import TestResult, case_label

_REDRAW_S = 0.2
"""The shortest time between two updates of a notebook, which travel over a network."""
_TICK_S = 1.0
"""The longest time, so that the seconds go on while a test runs."""
_MAX_NAME = 60


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

    def add_cases(
        self, cases: Sequence[TestCaseModel], known: Mapping[int, TestResult] | None = None
    ) -> None:
        """Add the cases of an agent; `known` are results of an earlier run, by index."""
        known, live = known or {}, self.progress.live
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
        name = case.name and self._redact(case.name)
        label = case_label(name, self._redact(case.user_input))
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
        return f"{', '.join(counts)}: {one_line(state, _MAX_NAME)}"

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
