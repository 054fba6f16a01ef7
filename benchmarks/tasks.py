"""What is to be done in one run: how many cases, how many at once, by what kind of provider."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

CHAT = "chat"
SEMANTIC_KERNEL = "semantic_kernel"
BACKENDS = (CHAT, SEMANTIC_KERNEL)
PARALLEL = 100
STANDARD = (1, 1000, 10_000)
LATENCY_MS = 200.0


@dataclass(frozen=True)
class Task:
    """One run of a suite of equal cases."""

    name: str
    cases: int
    parallel: int | None = PARALLEL
    """None leaves it to the harness."""
    latency_ms: float = LATENCY_MS
    most_at_once: int | None = None
    """The provider refuses what is above; None takes any number."""
    with_tool: bool = False
    """Each case calls a tool, which takes a second completion."""
    is_recorded: bool = True
    is_interrupted: bool = False
    for_peers: bool = False
    backends: tuple[str, ...] = BACKENDS
    is_standard: bool = True
    """Whether it is as the goals want it."""

    @property
    def completions(self) -> int:
        return self.cases * (2 if self.with_tool else 1)

    @property
    def waits_s(self) -> float:
        """The time that no harness can beat: whole rounds of waiting, on the start of Python."""
        rounds = math.ceil(self.cases / (self.parallel or PARALLEL))
        return rounds * (2 if self.with_tool else 1) * self.latency_ms / 1000


GROUPS = (
    ("one",),
    ("many", "unrecorded"),
    ("default",),
    ("most",),
    ("wide", "narrow"),
    ("limited",),
    ("stopped",),
    ("tools",),
    ("swift one", "swift many"),
)
"""Tasks of a group are run in turn, so that what is compared meets the same machine."""


def tasks(sizes: Sequence[int] = STANDARD, latency_ms: float = LATENCY_MS) -> Mapping[str, Task]:
    """All tasks that the sizes (few, many, most; the last ones may be missing) allow, by name."""
    few, many, most = (*sizes, None, None)[:3]
    found = [Task("one", few or 1, latency_ms=latency_ms, for_peers=True)]
    found.append(Task("swift one", 1, latency_ms=0))
    found.append(Task("limited", 100, latency_ms=latency_ms, most_at_once=10, for_peers=True))
    found.append(Task("stopped", STANDARD[1], latency_ms=latency_ms, is_interrupted=True))
    if many is not None:
        found += _of_many(many, latency_ms)
    if most is not None:
        found.append(Task("most", most, latency_ms=latency_ms, for_peers=True))
    wanted = dict(zip(("one", "many", "most"), STANDARD, strict=True))
    usual = {"limited": 100, "swift one": 1, "swift many": 2 * STANDARD[1]}
    return {task.name: _marked(task, wanted | usual, latency_ms) for task in found}


def _of_many(cases: int, latency_ms: float) -> list[Task]:
    return [
        Task("many", cases, latency_ms=latency_ms, for_peers=True),
        Task("unrecorded", cases, latency_ms=latency_ms, is_recorded=False),
        Task("default", cases, parallel=None, latency_ms=latency_ms, for_peers=True),
        Task("wide", cases, latency_ms=latency_ms / 4),
        Task("narrow", cases, parallel=10, latency_ms=latency_ms / 4),
        Task("tools", cases, latency_ms=latency_ms, with_tool=True, backends=(CHAT,)),
        Task("swift many", 2 * cases, latency_ms=0),
    ]


def _marked(task: Task, standard: Mapping[str, int], latency_ms: float) -> Task:
    as_wanted = task.cases == standard.get(task.name, STANDARD[1]) and latency_ms == LATENCY_MS
    return replace(task, is_standard=as_wanted)
