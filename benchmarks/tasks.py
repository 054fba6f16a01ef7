"""What is to be done in one run: how many cases, how many at once, by what kind of provider."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

CHAT = "chat"
SEMANTIC_KERNEL = "semantic_kernel"
BACKENDS = (CHAT, SEMANTIC_KERNEL)
KERNEL_OBJECT = "object of Semantic Kernel"
FUNCTION = "function"
PROCESS = "process"
BURNING = "function that computes"
BARE_LOOP = "bare loop"
"""Other ways to reach an agent: what makes it in Python, a function, that function in a process, a
function that needs a core all the time; and a program that has no harness at all."""
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
    for_peers: bool = False
    backends: tuple[str, ...] = BACKENDS
    has_server: bool = True
    """Whether the agent asks the server; otherwise it waits as long itself."""
    workers: int = 1
    """Processes that run the cases."""
    is_standard: bool = True
    """Whether it is as the goals want it."""

    @property
    def completions(self) -> int:
        return self.cases if self.has_server else 0

    @property
    def waits_s(self) -> float:
        """The time that no harness can beat: whole rounds of waiting."""
        return math.ceil(self.cases / (self.parallel or PARALLEL)) * self.latency_ms / 1000


GROUPS = (
    ("one",),
    ("many",),
    ("most",),
    ("limited",),
    ("object",),
    ("process",),
    ("burning", "burning in workers"),
)
"""Tasks of a group are run in turn, so that what is compared meets the same machine."""


def tasks(sizes: Sequence[int] = STANDARD, latency_ms: float = LATENCY_MS) -> Mapping[str, Task]:
    """All tasks that the sizes (few, many, most; the last ones may be missing) allow, by name."""
    few, many, most = (*sizes, None, None)[:3]
    of_all = (*BACKENDS, BARE_LOOP)
    found = [
        Task("one", few or 1, latency_ms=latency_ms, for_peers=True, backends=of_all),
        Task("limited", 100, latency_ms=latency_ms, most_at_once=10, for_peers=True),
        *_of_ways(latency_ms),
    ]
    if many is not None:
        found.append(Task("many", many, parallel=None, latency_ms=latency_ms, for_peers=True))
    if most is not None:
        found.append(Task("most", most, latency_ms=latency_ms, for_peers=True))
    usual = dict(zip(("one", "many", "most"), STANDARD, strict=True)) | {"limited": 100}
    usual |= dict.fromkeys(("object", "process", "burning", "burning in workers"), 500)
    return {task.name: _marked(task, usual, latency_ms) for task in found}


def _of_ways(latency_ms: float) -> list[Task]:
    """Tasks that compare two ways to reach the same agent."""
    half = latency_ms / 2
    of_object, of_process = (SEMANTIC_KERNEL, KERNEL_OBJECT), (FUNCTION, PROCESS)
    return [
        Task("object", 500, parallel=50, latency_ms=half, backends=of_object),
        Task("process", 500, 10, half, backends=of_process, has_server=False),
        Task("burning", 500, 2, backends=(BURNING,), has_server=False),
        Task("burning in workers", 500, 2, backends=(BURNING,), has_server=False, workers=2),
    ]


def _marked(task: Task, standard: Mapping[str, int], latency_ms: float) -> Task:
    as_wanted = task.cases == standard[task.name] and latency_ms == LATENCY_MS
    return replace(task, is_standard=as_wanted)
