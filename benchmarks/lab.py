"""Runs tasks and keeps what was measured; a run that did not do the work is not counted."""

import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contestants import Contestant, Job
from loopback import configure, stats
from measure import Measured, measure, wait_for_quiet
from tasks import Task

LONGEST_RUN_S = 120.0


class NotCounted(Exception):
    """There is no number, because the work was not done."""


@dataclass(frozen=True)
class Run:
    """One run of a task, as the machine and the server saw it."""

    wall_s: float
    """Of the whole process."""
    cpu_s: float
    peak_mb: float
    others: float
    """Cores taken meanwhile by others than the run and the fake server."""
    requests: int
    passed: int
    at_once: int
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
            ran = measure(prepared.command, folder, prepared.env, LONGEST_RUN_S)
            seen = stats(self.url)
            others = max(0.0, ran.others - (seen["cpu_s"] - before) / ran.wall_s)
            passed = who.passed(job, ran.output)
            trouble = _undone(who, job, ran, seen, passed)
        return Run(
            wall_s=ran.wall_s,
            cpu_s=ran.cpu_s,
            peak_mb=ran.peak_mb,
            others=others,
            requests=seen["requests"],
            passed=passed,
            at_once=seen["peak"],
            trouble=trouble,
        )


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


@contextmanager
def _folder() -> Iterator[Path]:
    name = tempfile.mkdtemp(prefix="holodeck-benchmark-")
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name, ignore_errors=True)
