"""The promises as data: what is measured, and what it may be at most."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from figures import (
    Measure,
    each_cpu,
    memory,
    requests_a_case,
    tap_added,
    wall_to_fastest_peer,
    wall_to_other,
    wall_to_task,
)
from tasks import BARE_LOOP, BURNING, CHAT, FUNCTION, KERNEL_OBJECT, PROCESS, SEMANTIC_KERNEL

EITHER = "either"
"""In place of a backend, where there is no difference."""
ONLY_KERNEL = (SEMANTIC_KERNEL,)


@dataclass(frozen=True)
class Promise:
    """One line of the table."""

    id: str
    what: str
    """In braces the names of tasks whose number of cases is meant."""
    unit: str
    needs: tuple[str, ...]
    """Names of tasks."""
    measure: Measure
    goals: Mapping[str, float] = field(default_factory=dict)
    """By backend: at most this."""
    for_peers: bool = False
    """Whether others are shown beside it."""
    backends: tuple[str, ...] = (CHAT, SEMANTIC_KERNEL)


PROMISES = (
    Promise(
        "S1",
        "{one} case / the fastest peer",
        "×",
        ("one",),
        wall_to_fastest_peer("one"),
        {CHAT: 0.45, SEMANTIC_KERNEL: 1.1},
    ),
    Promise(
        "S2",
        "{one} case / a bare loop over Semantic Kernel",
        "×",
        ("one",),
        wall_to_other("one", BARE_LOOP),
        {SEMANTIC_KERNEL: 0.7},
        backends=ONLY_KERNEL,
    ),
    Promise(
        "S3",
        "{many} cases / the fastest peer",
        "×",
        ("many",),
        wall_to_fastest_peer("many"),
        {CHAT: 0.6, SEMANTIC_KERNEL: 0.7},
    ),
    Promise(
        "S4",
        "{most} cases, Semantic Kernel / chat",
        "×",
        ("most",),
        wall_to_other("most", CHAT),
        {SEMANTIC_KERNEL: 1.3},
        backends=ONLY_KERNEL,
    ),
    Promise(
        "S5",
        "peak memory, {most} cases",
        "MB",
        ("most",),
        memory("most"),
        {CHAT: 160, SEMANTIC_KERNEL: 220},
        for_peers=True,
    ),
    Promise("S6", "peak memory, {one} case", "MB", ("one",), memory("one"), for_peers=True),
    Promise(
        "S7",
        "CPU of each further case",
        "ms",
        ("many", "one"),
        each_cpu("many", "one"),
        for_peers=True,
    ),
    Promise(
        "S8",
        "requests a case, provider takes 10 at once",
        "×",
        ("limited",),
        requests_a_case,
        for_peers=True,
    ),
    Promise(
        "S9",
        "{object} cases, an agent object / from YAML",
        "×",
        ("object",),
        wall_to_other("object", SEMANTIC_KERNEL, KERNEL_OBJECT),
        backends=ONLY_KERNEL,
    ),
    Promise(
        "S10",
        "{process} cases, in a process / in holodeck",
        "×",
        ("process",),
        wall_to_other("process", FUNCTION, PROCESS),
        backends=(EITHER,),
    ),
    Promise(
        "S11",
        "a request through the tap, at the median",
        "ms more",
        (),
        tap_added,
        backends=(EITHER,),
    ),
    Promise(
        "S12",
        "{burning} cases of 10 ms CPU, 2 workers / one process",
        "×",
        ("burning in workers", "burning"),
        wall_to_task("burning in workers", "burning", BURNING),
        backends=(EITHER,),
    ),
)
