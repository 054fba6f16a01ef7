"""How each number of the table follows from the runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lab import NotCounted, Outcome, Run
from tap import Tapped
from tasks import Task


@dataclass(frozen=True)
class Figure:
    """A number, what it comes from, and how disturbed that was."""

    value: float
    raw: str
    others: float


@dataclass(frozen=True)
class Seen:
    """Everything that was measured."""

    tasks: Mapping[str, Task]
    outcomes: Mapping[tuple[str, str], Outcome]
    peers: Sequence[str]
    """Names of the other harnesses that took part."""
    tapped: Tapped | None = None
    """Requests through the tap; None if that was not measured."""

    def of(self, who: str, task: str) -> Outcome:
        """Raises NotCounted."""
        if (who, task) not in self.outcomes:
            raise NotCounted("not run")
        return self.outcomes[who, task].checked()

    def each_cpu_ms(self, who: str, many: str, one: str) -> float:
        """CPU of each further case."""
        more, less = self.of(who, many), self.of(who, one)
        cases = self.tasks[many].cases - self.tasks[one].cases
        return (more.cpu_s - less.cpu_s) * 1000 / cases


Measure = Callable[[Seen, str], Figure]
"""The number of a contestant. Raises NotCounted."""


def wall_to_fastest_peer(task: str) -> Measure:
    """Wall time against that of the fastest peer in the task."""

    def measure(seen: Seen, who: str) -> Figure:
        ours = seen.of(who, task).middle
        name, theirs = _fastest(seen, task)
        raw = f"{ours.wall_s:.2f} s against {name}'s {theirs.wall_s:.2f} s"
        return Figure(ours.wall_s / theirs.wall_s, raw, max(ours.others, theirs.others))

    return measure


def wall_to_other(task: str, other: str, of: str | None = None) -> Measure:
    """Wall time against that of another way to reach the agent, in the same task."""

    def measure(seen: Seen, who: str) -> Figure:
        ours, theirs = seen.of(of or who, task).middle, seen.of(other, task).middle
        raw = f"{ours.wall_s:.2f} s against {theirs.wall_s:.2f} s, CPU {ours.cpu_s:.2f} s"
        raw += f" against {theirs.cpu_s:.2f} s"
        return Figure(ours.wall_s / theirs.wall_s, raw, max(ours.others, theirs.others))

    return measure


def wall_to_task(task: str, other: str, of: str | None = None) -> Measure:
    """Wall time against that of another task."""

    def measure(seen: Seen, who: str) -> Figure:
        ours, theirs = (seen.of(of or who, one).middle for one in (task, other))
        raw = f"{ours.wall_s:.2f} s against {theirs.wall_s:.2f} s, CPU {ours.cpu_s:.2f} s"
        raw += f" against {theirs.cpu_s:.2f} s"
        return Figure(ours.wall_s / theirs.wall_s, raw, max(ours.others, theirs.others))

    return measure


def tap_added(seen: Seen, _: str) -> Figure:
    """Raises NotCounted."""
    if seen.tapped is None:
        raise NotCounted("not run")
    direct, tapped = seen.tapped.direct_ms, seen.tapped.tapped_ms
    raw = f"{tapped:.2f} ms against {direct:.2f} ms, {seen.tapped.pairs} pairs"
    return Figure(seen.tapped.added_ms, raw, seen.tapped.others)


def each_cpu(many: str, one: str) -> Measure:
    def measure(seen: Seen, who: str) -> Figure:
        more, less = seen.of(who, many), seen.of(who, one)
        raw = f"{more.cpu_s:.2f} s, of which {less.cpu_s:.2f} s for the first"
        return Figure(seen.each_cpu_ms(who, many, one), raw, _others(more, less))

    return measure


def memory(task: str) -> Measure:
    def measure(seen: Seen, who: str) -> Figure:
        outcome = seen.of(who, task)
        return Figure(outcome.peak_mb, f"the most of {len(outcome.runs)}", _others(outcome))

    return measure


def requests_a_case(seen: Seen, who: str) -> Figure:
    run = seen.of(who, "limited").middle
    return Figure(run.requests / seen.tasks["limited"].cases, _counts(run), run.others)


def _counts(run: Run) -> str:
    return f"{run.passed} right, {run.requests} requests, {run.at_once} at once"


def _others(*outcomes: Outcome) -> float:
    return max(outcome.middle.others for outcome in outcomes)


def _fastest(seen: Seen, task: str) -> tuple[str, Run]:
    """The peer that did it in the shortest time. Raises NotCounted if none did it."""
    found = {}
    for name in seen.peers:
        try:
            found[name] = seen.of(name, task).middle
        except NotCounted:  # it has a line of its own that says so
            continue
    if not found:
        raise NotCounted("not run: no peer did it")
    return min(found.items(), key=lambda item: item[1].wall_s)
