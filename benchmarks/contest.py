"""Lets all contestants do all tasks in turn, within a bearable time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from contestants import Contestant, Rival
from lab import Lab, Outcome, Run, rounds, settled
from tasks import GROUPS, PARALLEL, Task

PROBED = 20
"""Cases by which a peer's time for more is estimated."""
CELL_S = 20.0
"""So long may the runs of one contestant at one task take; one is made in any case."""
LONGEST_S = 150.0
"""What is estimated to take longer is not run."""

Say = Callable[[str], None]
Key = tuple[str, str]
"""The names of a contestant and a task."""


@dataclass(frozen=True)
class Contest:
    """Who does what how often, where."""

    lab: Lab
    contestants: Sequence[Contestant]
    tasks: Mapping[str, Task]
    runs: int
    say: Say

    def outcomes(self, wanted: frozenset[str]) -> dict[Key, Outcome]:
        """What came of the wanted tasks."""
        estimates = Estimates(self.lab)
        tasks = [self.tasks[name] for name in wanted & self.tasks.keys()]
        self._warm_up([who for who in self.contestants if any(map(who.takes, tasks))])
        found: dict[Key, Outcome] = {}
        for group in GROUPS:
            chosen = [self.tasks[name] for name in group if name in wanted & self.tasks.keys()]
            found |= self._group(chosen, estimates)
            estimates.learn_from(found, self.tasks)
        return found

    def _warm_up(self, contestants: Sequence[Contestant]) -> None:
        """One run of each that is not counted: it writes the byte code."""
        for who in contestants:
            self.say(f"warming up: {who.name}")
            self.lab.run(who, self.tasks["one"])

    def _group(self, chosen: Sequence[Task], estimates: "Estimates") -> dict[Key, Outcome]:
        cells, found = list[tuple[Contestant, Task, int]](), dict[Key, Outcome]()
        for who in self.contestants:
            for task in chosen:
                if not who.takes(task):
                    continue
                seconds = estimates.seconds(who, task)
                if who.is_peer and seconds > LONGEST_S:
                    found[who.name, task.name] = Outcome(note=f"not run: about {seconds:.0f} s")
                else:
                    cells.append((who, task, self._count(seconds)))
        return found | self._run(cells)

    def _count(self, seconds: float) -> int:
        return max(1, min(self.runs, int(CELL_S / max(seconds, 0.01))))

    def _run(self, cells: list[tuple[Contestant, Task, int]]) -> dict[Key, Outcome]:
        runs: list[list[Run]] = [[] for _ in cells]
        for index, run in rounds(self.lab, cells):
            who, task, _ = cells[index]
            self.say(
                f"{task.name}: {who.name} {run.trouble or f'{run.wall_s:.2f} s'}"
                f" (others {run.others:.2f})"
            )
            runs[index].append(run)
        return {
            (who.name, task.name): Outcome(self._settled(who, task, made))
            for (who, task, _), made in zip(cells, runs, strict=True)
        }

    def _settled(self, who: Contestant, task: Task, runs: list[Run]) -> tuple[Run, ...]:
        def again() -> Run:
            self.say(f"{task.name}: {who.name} again, others took too much")
            return self.lab.run(who, task)

        if who.is_peer and Outcome(tuple(runs)).middle.wall_s > CELL_S:
            return tuple(runs)
        return settled(runs, self.lab.most_others, again)


@dataclass
class Estimates:
    """How long a task will take, from a smaller one of the same kind."""

    lab: Lab
    _known: dict[tuple[str, int | None, int], float] = field(default_factory=dict)

    def learn_from(self, found: Mapping[Key, Outcome], tasks: Mapping[str, Task]) -> None:
        """Remember how long tasks took, so that larger ones are estimated from these."""
        for (name, task_name), outcome in found.items():
            task = tasks[task_name]
            if outcome.runs and task.for_peers and task.most_at_once is None:
                self._known[name, task.parallel, task.cases] = outcome.middle.wall_s

    def seconds(self, who: Contestant, task: Task) -> float:
        if isinstance(who, Rival) and not who.peer.is_parallel:
            return task.cases * task.latency_ms / 1000
        if not who.is_peer or task.cases <= PARALLEL:
            return task.waits_s
        known = [
            cases
            for name, parallel, cases in self._known
            if (name, parallel) == (who.name, task.parallel) and PROBED < cases < task.cases
        ]
        most = max(known, default=PROBED)
        one, some = (self._of(who, task, cases) for cases in (1, most))
        each = max(0.0, some - one) / (most - 1)
        return max(task.waits_s, one + each * task.cases)

    def _of(self, who: Contestant, task: Task, cases: int) -> float:
        key = (who.name, task.parallel, cases)
        if key not in self._known:
            small = Task("probe", cases, task.parallel, task.latency_ms)
            self._known[key] = self.lab.run(who, small).wall_s
        return self._known[key]
