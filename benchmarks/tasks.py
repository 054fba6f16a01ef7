"""What is to be done in one run: how many cases, how many at once, by what kind of provider."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

CHAT = "chat"
SEMANTIC_KERNEL = "semantic_kernel"
BACKENDS = (CHAT, SEMANTIC_KERNEL)
KERNEL_OBJECT = "object of Semantic Kernel"
FUNCTION = "function"
PROCESS = "process"
BURNING = "function that computes"
"""Other ways to reach an agent: what makes it in Python, a function, that function in a process, a
function that needs a core all the time."""
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
    has_server: bool = True
    """Whether the agent asks the server; otherwise it waits as long itself."""
    workers: int = 1
    """Processes that run the cases."""
    is_standard: bool = True
    """Whether it is as the goals want it."""

    @property
    def completions(self) -> int:
        return self.cases * (2 if self.with_tool else 1) if self.has_server else 0

    @property
    def waits_s(self) -> float:
        """The time that no harness can beat: whole rounds of waiting, on the start of Python."""
        rounds = math.ceil(self.cases / (self.parallel or PARALLEL))
        return rounds * (2 if self.with_tool else 1) * self.latency_ms / 1000


GROUPS = (
    ("one",),
    ("many", "unrecorded", "many in workers"),
    ("default",),
    ("most", "most in workers"),
    ("wide", "narrow"),
    ("limited",),
    ("stopped",),
    ("tools",),
    ("object",),
    ("process",),
    ("swift process",),
    ("swift one", "swift many"),
    ("burning", "burning in workers"),
)
"""Tasks of a group are run in turn, so that what is compared meets the same machine."""


def tasks(sizes: Sequence[int] = STANDARD, latency_ms: float = LATENCY_MS) -> Mapping[str, Task]:
    """All tasks that the sizes (few, many, most; the last ones may be missing) allow, by name."""
    few, many, most = (*sizes, None, None)[:3]
    found = [Task("one", few or 1, latency_ms=latency_ms, for_peers=True)]
    found.append(Task("swift one", 1, latency_ms=0))
    found.append(Task("limited", 100, latency_ms=latency_ms, most_at_once=10, for_peers=True))
    found.append(Task("stopped", STANDARD[1], latency_ms=latency_ms, is_interrupted=True))
    found += _of_ways(latency_ms)
    if many is not None:
        found += _of_many(many, latency_ms)
    if most is not None:
        found += _of_most(most, latency_ms)
    wanted = dict(zip(("one", "many", "most"), STANDARD, strict=True))
    wanted["most in workers"] = wanted["most"]
    usual = {"limited": 100, "swift one": 1, "swift many": 2 * STANDARD[1]}
    usual |= dict.fromkeys(("object", "process", "swift process"), 500)
    usual |= dict.fromkeys(("burning", "burning in workers"), 500)
    return {task.name: _marked(task, wanted | usual, latency_ms) for task in found}


def _of_many(cases: int, latency_ms: float) -> list[Task]:
    return [
        Task("many", cases, latency_ms=latency_ms, for_peers=True),
        Task("many in workers", cases, latency_ms=latency_ms, workers=2),
        Task("unrecorded", cases, latency_ms=latency_ms, is_recorded=False),
        Task("default", cases, parallel=None, latency_ms=latency_ms, for_peers=True),
        Task("wide", cases, latency_ms=latency_ms / 4),
        Task("narrow", cases, parallel=10, latency_ms=latency_ms / 4),
        Task("tools", cases, latency_ms=latency_ms, with_tool=True, backends=(CHAT,)),
        Task("swift many", 2 * cases, latency_ms=0),
    ]


def _of_most(cases: int, latency_ms: float) -> list[Task]:
    only = (SEMANTIC_KERNEL,)
    return [
        Task("most", cases, latency_ms=latency_ms, for_peers=True),
        Task("most in workers", cases, latency_ms=latency_ms, workers=2, backends=only),
    ]


def _of_ways(latency_ms: float) -> list[Task]:
    """Tasks that compare two ways to reach the same agent."""
    half = latency_ms / 2
    of_object, of_process = (SEMANTIC_KERNEL, KERNEL_OBJECT), (FUNCTION, PROCESS)
    function = partial(Task, cases=500, parallel=10, backends=of_process, has_server=False)
    return [
        Task("object", 500, parallel=50, latency_ms=half, backends=of_object),
        function("process", latency_ms=half),
        function("swift process", latency_ms=0),
        Task("burning", 500, 2, backends=(BURNING,), has_server=False),
        Task("burning in workers", 500, 2, backends=(BURNING,), has_server=False, workers=2),
    ]


def _marked(task: Task, standard: Mapping[str, int], latency_ms: float) -> Task:
    as_wanted = task.cases == standard.get(task.name, STANDARD[1]) and latency_ms == LATENCY_MS
    return replace(task, is_standard=as_wanted)
