"""The progress of a run that Python code started: in place in a notebook, as lines elsewhere."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape

from holodeck.lib.reports.recap import case_label
from holodeck.lib.support.text import one_line
from holodeck.lib.test_runner.progress import ProgressIndicator
from holodeck.lib.ui.frontend import NotebookOutput, detect_frontend
from holodeck.lib.ui.live import LiveLine
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import TestResult

_REDRAW_S = 0.2
"""The shortest time between two updates of a notebook, which travel over a network."""
_TICK_S = 1.0
"""The longest one, so that the seconds go on while a test runs."""
_MAX_NAME = 60


class RunDisplay(ABC):
    """Shows a run; `start_test` and `update` are callbacks of TestExecutor."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self.progress = ProgressIndicator(0)
        self._redact = redact

    def start_test(self, case: TestCaseModel) -> None:
        """Show that a test runs."""
        name = case.name and self._redact(case.name)
        self.progress.start_test(case_label(name, self._redact(case.user_input)))

    def update(self, result: TestResult) -> None:
        """Show the result of a test, which holds no secrets."""
        self.progress.update(result)

    @abstractmethod
    @contextmanager
    def shown(self, total_tests: int) -> Iterator[None]:
        """Show the run until the block ends."""


def choose_display(progress: bool | None, redact: Callable[[str], str]) -> RunDisplay | None:
    """Return how to show a run; None if it is not shown.

    `progress` None means only where a person looks on: in a notebook and in the IPython shell.
    """
    frontend = detect_frontend()
    if progress is False or (progress is None and frontend == "script"):
        return None
    return NotebookDisplay(redact) if frontend == "notebook" else TextDisplay(redact)


class TextDisplay(RunDisplay):
    """A line for each finished test, and on a terminal what runs now."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__(redact)
        self._line = LiveLine(self.progress.get_live_line, self.progress.get_heartbeat_line)

    def update(self, result: TestResult) -> None:
        super().update(result)
        line = self.progress.get_progress_line()
        if line:
            self._line.write("\n".join([line, *self.progress.get_reason_lines()]))

    @contextmanager
    def shown(self, total_tests: int) -> Iterator[None]:
        self.progress.total_tests = total_tests
        with self._line:
            yield


class NotebookDisplay(RunDisplay):
    """A bar with counts and the running test, updated in place."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__(redact)
        self._output: NotebookOutput | None = None
        self._started = self._drawn = 0.0

    def start_test(self, case: TestCaseModel) -> None:
        super().start_test(case)
        self._redraw()

    def update(self, result: TestResult) -> None:
        super().update(result)
        self._redraw()

    @contextmanager
    def shown(self, total_tests: int) -> Iterator[None]:
        self.progress.total_tests = total_tests
        self._output, self._started = NotebookOutput(), time.monotonic()
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
        self._output.show({"text/plain": status, "text/html": bar})
