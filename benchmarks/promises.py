"""The promises as data: what is measured, and what it may be at most."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from figures import (
    Measure,
    added_to_case,
    after_last_answer,
    cpu_ratio,
    each_cpu,
    memory,
    recording_cpu,
    requests_a_case,
    startup,
    tap_added,
    throughput,
    wall,
    wall_to_fastest_peer,
    wall_to_limit,
    wall_to_other,
    wall_to_task,
)
from tasks import BURNING, CHAT, FUNCTION, KERNEL_OBJECT, PROCESS, SEMANTIC_KERNEL

EITHER = "either"
"""In place of a backend, where there is no difference."""


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
    Promise("S1", "--help / click", "×", (), startup("--help"), {EITHER: 1.3}, backends=(EITHER,)),
    Promise(
        "S1", "--version / click", "×", (), startup("--version"), {EITHER: 1.3}, backends=(EITHER,)
    ),
    Promise(
        "S2", "{one} case / P", "×", ("one",), wall_to_limit("one"), {CHAT: 2.2}, for_peers=True
    ),
    Promise(
        "S2",
        "{one} case",
        "s",
        ("one",),
        wall("one"),
        {SEMANTIC_KERNEL: 1.0},
        backends=(SEMANTIC_KERNEL,),
    ),
    Promise(
        "S3",
        "{many} cases, 100 at once / P",
        "×",
        ("many",),
        wall_to_limit("many"),
        {CHAT: 1.2, SEMANTIC_KERNEL: 1.65},
        for_peers=True,
    ),
    Promise(
        "S3",
        "the same / the fastest peer",
        "×",
        ("many",),
        wall_to_fastest_peer("many"),
        {CHAT: 0.7, SEMANTIC_KERNEL: 1.0},
    ),
    Promise(
        "S4",
        "{many} cases, default settings / P",
        "×",
        ("default",),
        wall_to_limit("default"),
        {CHAT: 1.5, SEMANTIC_KERNEL: 2.0},
        for_peers=True,
    ),
    Promise(
        "S4",
        "the same / the fastest peer",
        "×",
        ("default",),
        wall_to_fastest_peer("default"),
        {CHAT: 1.0},
    ),
    Promise(
        "S5",
        "{most} cases, 100 at once / P",
        "×",
        ("most",),
        wall_to_limit("most"),
        {CHAT: 1.08, SEMANTIC_KERNEL: 1.3},
        for_peers=True,
    ),
    Promise(
        "S6",
        "CPU of each further case",
        "ms",
        ("many", "one"),
        each_cpu("many", "one"),
        {CHAT: 0.5, SEMANTIC_KERNEL: 2.0},
        for_peers=True,
    ),
    Promise(
        "S7",
        "CPU a case, {most} / {many} cases",
        "×",
        ("most", "many", "one"),
        cpu_ratio("most", "many", "one"),
        {CHAT: 1.15, SEMANTIC_KERNEL: 1.15},
        for_peers=True,
    ),
    Promise(
        "S8", "peak memory, {one} case", "MB", ("one",), memory("one"), {CHAT: 70}, for_peers=True
    ),
    Promise(
        "S8",
        "peak memory, {many} cases",
        "MB",
        ("many",),
        memory("many"),
        {CHAT: 70, SEMANTIC_KERNEL: 190},
        for_peers=True,
    ),
    Promise(
        "S8",
        "peak memory, {most} cases",
        "MB",
        ("most",),
        memory("most"),
        {CHAT: 160, SEMANTIC_KERNEL: 260},
        for_peers=True,
    ),
    Promise(
        "S9",
        "CPU a case, 100 / 10 at once",
        "×",
        ("wide", "narrow", "one"),
        cpu_ratio("wide", "narrow", "one"),
        {CHAT: 1.3, SEMANTIC_KERNEL: 1.3},
    ),
    Promise(
        "S10",
        "CPU a case for the record",
        "ms",
        ("many", "unrecorded"),
        recording_cpu,
        {CHAT: 0.1, SEMANTIC_KERNEL: 0.1},
    ),
    Promise(
        "S10",
        "from the last answer to the exit",
        "ms",
        ("many", "unrecorded"),
        after_last_answer,
        {CHAT: 50, SEMANTIC_KERNEL: 50},
    ),
    Promise(
        "S11",
        "from Ctrl-C to the exit, 100 in flight",
        "s",
        ("stopped",),
        wall("stopped"),
        {CHAT: 1.0, SEMANTIC_KERNEL: 1.0},
    ),
    Promise(
        "S13",
        "100 cases, provider takes 10 at once",
        "s",
        ("limited",),
        wall("limited"),
        {CHAT: 5.0, SEMANTIC_KERNEL: 5.0},
        for_peers=True,
    ),
    Promise(
        "S13",
        "the same: requests a case",
        "×",
        ("limited",),
        requests_a_case,
        {CHAT: 1.6, SEMANTIC_KERNEL: 1.6},
        for_peers=True,
    ),
    Promise(
        "S14",
        "{many} cases with a tool call / P",
        "×",
        ("tools",),
        wall_to_limit("tools"),
        {CHAT: 1.25},
        backends=(CHAT,),
    ),
    Promise(
        "S15",
        "{object} cases, an agent object / from YAML",
        "×",
        ("object",),
        wall_to_other("object", SEMANTIC_KERNEL, KERNEL_OBJECT),
        {SEMANTIC_KERNEL: 1.1},
        backends=(SEMANTIC_KERNEL,),
    ),
    Promise(
        "S16",
        "{process} cases, in a process / in holodeck",
        "×",
        ("process",),
        wall_to_other("process", FUNCTION, PROCESS),
        {EITHER: 1.1},
        backends=(EITHER,),
    ),
    Promise(
        "S16",
        "a case answered at once, in a process",
        "ms more",
        ("swift process",),
        added_to_case("swift process", PROCESS, FUNCTION),
        backends=(EITHER,),
    ),
    Promise(
        "S17",
        "a request through the tap, at the median",
        "ms more",
        (),
        tap_added,
        {EITHER: 2.0},
        backends=(EITHER,),
    ),
    Promise(
        "S18",
        "{many} cases, 2 workers / one process",
        "×",
        ("many in workers", "many"),
        wall_to_task("many in workers", "many"),
        {SEMANTIC_KERNEL: 0.65},
    ),
    Promise(
        "S18",
        "the same / the fastest peer",
        "×",
        ("many in workers", "many"),
        wall_to_fastest_peer("many in workers", "many"),
        {SEMANTIC_KERNEL: 0.7},
        backends=(SEMANTIC_KERNEL,),
    ),
    Promise(
        "S18",
        "{most} cases, 2 workers / one process",
        "×",
        ("most in workers", "most"),
        wall_to_task("most in workers", "most"),
        {},
        backends=(SEMANTIC_KERNEL,),
    ),
    Promise(
        "S18",
        "{burning} cases of 10 ms CPU, 2 workers / one process",
        "×",
        ("burning in workers", "burning"),
        wall_to_task("burning in workers", "burning", BURNING),
        {EITHER: 0.59},
        backends=(EITHER,),
    ),
    Promise("0ms", "a case answered at once", "ms", ("swift many", "swift one"), throughput),
)
