"""Runs tasks and keeps what was measured; a run that did not do the work is not counted."""

import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contestants import Contestant, Job, report_of
from loopback import configure, stats
from measure import Measured, has_ended, measure, wait_for_quiet
from tasks import Task

LONGEST_RUN_S = 120.0


class NotCounted(Exception):
    """There is no number, because the work was not done."""


@dataclass(frozen=True)
class Run:
    """One run of a task, as the machine and the server saw it."""

    wall_s: float
    """Of the whole process; of an interrupted one from the signal on."""
    cpu_s: float
    peak_mb: float
    others: float
    """Cores taken meanwhile by others than the run and the fake server."""
    requests: int
    passed: int
    at_once: int
    after_answer_s: float
    """From the server's last answer to the end of the process."""
    trouble: str | None = None
    """Why it does not count; None if it does."""


@dataclass(frozen=True)
class Outcome:
    """The runs of one task by one contestant that were kept."""

    runs: tuple[Run, ...] = ()
    note: str | None = None
    """Why there are none."""

    def checked(self) -> "Outcome":
        """Itself. Raises NotCounted if it has no runs, or one that did not do the work."""
        if self.note is not None:
            raise NotCounted(self.note)
        for run in self.runs:
            if run.trouble is not None:
                raise NotCounted(f"not counted: {run.trouble}")
        return self

    @property
    def middle(self) -> Run:
        """The one with the median wall time (the lower of two)."""
        return sorted(self.runs, key=lambda run: run.wall_s)[(len(self.runs) - 1) // 2]

    @property
    def cpu_s(self) -> float:
        return statistics.median(run.cpu_s for run in self.runs)

    @property
    def peak_mb(self) -> float:
        return max(run.peak_mb for run in self.runs)

    @property
    def after_answer_s(self) -> float:
        return statistics.median(run.after_answer_s for run in self.runs)


@dataclass(frozen=True)
class Lab:
    """Where runs happen."""

    url: str
    most_others: float
    """Cores that others may take before a run counts as disturbed."""

    def run(self, who: Contestant, task: Task) -> Run:
        """Let the task be done once, in a folder of its own."""
        with _folder() as folder:
            job = Job(task, folder, self.url)
            prepared = who.prepare(job)
            wait_for_quiet(self.most_others)
            configure(self.url, latency_ms=task.latency_ms, most_at_once=task.most_at_once)
            before = stats(self.url)["cpu_s"]
            stop = Interruption(self.url, task) if task.is_interrupted else None
            ran = measure(prepared.command, folder, prepared.env, LONGEST_RUN_S, stop)
            seen = stats(self.url)
            others = max(0.0, ran.others - (seen["cpu_s"] - before) / ran.wall_s)
            passed = who.passed(job, ran.output)
            if stop is not None:
                trouble = _not_interrupted(job, ran, stop, passed)
            else:
                trouble = _undone(who, job, ran, seen, passed)
        return _run(ran, seen, others, passed, trouble, stop.at if stop else None)


class Interruption:
    """Sends Ctrl-C once as many requests are in flight as there may be."""

    def __init__(self, url: str, task: Task) -> None:
        self._url = url
        self._wanted = min(task.cases, task.parallel or task.cases)
        self.at: float | None = None
        """When the signal was sent; None if it was not."""

    def __call__(self, pid: int) -> None:
        until = time.monotonic() + LONGEST_RUN_S / 2
        while time.monotonic() < until and not has_ended(pid):
            seen = stats(self._url)  # after the first answers, so that there is something to keep
            if seen["in_flight"] >= self._wanted < seen["requests"]:
                self.at = time.monotonic()
                os.kill(pid, signal.SIGINT)
                return
            time.sleep(0.01)


def rounds(lab: Lab, cells: list[tuple[Contestant, Task, int]]) -> Iterator[tuple[int, Run]]:
    """Runs of the cells in turn, each as often as it says, with the cell's index."""
    for turn in range(max((count for _, _, count in cells), default=0)):
        for index, (who, task, count) in enumerate(cells):
            if turn < count:
                yield index, lab.run(who, task)


def quietest(runs: list[Run], count: int) -> tuple[Run, ...]:
    return tuple(sorted(runs, key=lambda run: run.others)[:count])


def settled(runs: list[Run], most_others: float, again: Callable[[], Run]) -> tuple[Run, ...]:
    """As many runs as given, with up to two more made where the median one was disturbed."""
    kept, seen = tuple(runs), list(runs)
    for _ in range(2):
        if Outcome(kept).middle.others <= most_others:
            break
        seen.append(again())
        kept = quietest(seen, len(runs))
    return kept


def _undone(
    who: Contestant, job: Job, ran: Measured, seen: dict[str, Any], passed: int
) -> str | None:
    """What was not done as it should be; None if all was."""
    task, requests = job.task, int(seen["requests"])
    asked = requests >= task.completions if seen["refused"] else requests == task.completions
    well = (ran.code == 0 or who.is_peer) and not seen["bleed"]
    if asked and well and passed == task.cases:
        return None
    if ran.wall_s >= LONGEST_RUN_S:
        return f"stopped after {LONGEST_RUN_S:.0f} s"
    last = "" if who.is_peer else f" …{ran.output[-200:].strip()!r}"
    return (
        f"{passed}/{task.cases} right, {requests} requests, {seen['bleed']} mixed up,"
        f" exit {ran.code}, {ran.wall_s:.2f} s{last}"
    )


def _not_interrupted(job: Job, ran: Measured, stop: Interruption, passed: int) -> str | None:
    if stop.at is None:
        return f"it ended with {ran.code} before {job.task.parallel} requests were in flight"
    is_partial = report_of(job.folder).get("interrupted") is True and passed > 0
    if ran.code == 130 and is_partial:
        return None
    report = "a partial report" if is_partial else "no partial report"
    return f"exit {ran.code} with {report} of {passed} passed cases"


def _run(
    ran: Measured,
    seen: dict[str, Any],
    others: float,
    passed: int,
    trouble: str | None,
    since: float | None,
) -> Run:
    ended = ran.started_at + ran.wall_s
    return Run(
        wall_s=ran.wall_s if since is None else ended - since,
        cpu_s=ran.cpu_s,
        peak_mb=ran.peak_mb,
        others=others,
        requests=seen["requests"],
        passed=passed,
        at_once=seen["peak"],
        after_answer_s=ended - (seen["last_answer_at"] or ended),
        trouble=trouble,
    )


@contextmanager
def _folder() -> Iterator[Path]:
    name = tempfile.mkdtemp(prefix="holodeck-benchmark-")
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name, ignore_errors=True)
