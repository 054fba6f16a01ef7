"""How fast `holodeck.scenario` is, and how fast langwatch-scenario is at the very same code.

    python benchmarks/scenario.py [--runs 3] [--home FOLDER] [--check] [--page docs/performance.md]

Both run `peers/langwatch_scenario/probe.py`, one task a process, in turn. A run counts only if the
conversation had as many messages as it should. `--check` exits with 1 when a goal is missed, and
`--page` writes the table between the marks of a page.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contestants import environment
from measure import Measured, measure, wait_for_quiet
from peers.homes import default_home
from peers.langwatch_scenario import PEER
from table import MISSED, OK, number

PROBE = PEER.place / "probe.py"
OURS, THEIRS = "holodeck.scenario", "scenario"
MARKED = re.compile(r"(<!-- scenarios -->\n).*?(<!-- /scenarios -->)", re.DOTALL)


@dataclass(frozen=True)
class Ran:
    """One process, and what it found out about itself."""

    process: Measured
    told: Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A number of a task."""

    task: str
    what: str
    unit: str
    of: Callable[[Ran], float]
    goal: float | None = None
    """At most this, of ours."""


def told(key: str) -> Callable[[Ran], float]:
    return lambda ran: float(ran.told[key])


FIGURES = (
    Figure("import", "importing the module", "ms", told("import_ms"), 150),
    Figure("import", "the names a test uses, in CPU", "ms", told("names_cpu_ms")),
    Figure("import", "memory after that", "MB", lambda ran: ran.process.peak_mb),
    Figure("one", "one instant scenario, the whole process", "s", lambda ran: ran.process.wall_s),
    Figure("one", "the same without the import", "ms", lambda ran: ran.told["s"] * 1000),
    Figure("run", "100 × 5 turns of 100 ms, 50 at once / ideal", "×", told("ratio"), 1.3),
    Figure("arun", "the same on the caller's loop", "×", told("ratio"), 1.3),
    Figure("long", "a turn of an instant scenario", "ms", told("ms_a_turn"), 5),
    Figure("long", "the same in CPU", "ms", told("cpu_ms_a_turn")),
    Figure("waiting", "back after the run was cancelled", "ms", told("late_ms"), 100),
    Figure("blocking", "the same, and the agent blocks its loop", "ms", told("late_ms"), 100),
)


@dataclass(frozen=True)
class Row:
    """A figure of both."""

    figure: Figure
    ours: float
    theirs: float
    ratio: float
    """Theirs against ours: the median of neighbours."""
    others: float

    @property
    def verdict(self) -> str:
        goal = self.figure.goal
        return "" if goal is None else OK if self.ours <= goal else MISSED

    def cells(self) -> list[str]:
        one, goal = self.figure, self.figure.goal
        bound = "" if goal is None else f" (≤ {number(goal)})"
        missed = " **missed**" if self.verdict == MISSED else ""
        return [
            one.what,
            f"{number(self.ours)} {one.unit}{bound}{missed}",
            f"{number(self.theirs)} {one.unit}",
            f"{number(self.ratio)} ×",
            f"{self.others:.2f}",
        ]


def row_of(figure: Figure, ours: Sequence[Ran], theirs: Sequence[Ran]) -> Row:
    """The medians of a figure, from runs made in turn."""
    mine, others = [[figure.of(one) for one in runs] for runs in (ours, theirs)]
    ratio = statistics.median(b / a for a, b in zip(mine, others, strict=True))
    used = statistics.median(one.process.others for one in [*ours, *theirs])
    return Row(figure, statistics.median(mine), statistics.median(others), ratio, used)


def run(command: Sequence[str], task: str, env: Mapping[str, str]) -> Ran:
    """One task in a process of its own. Raises RuntimeError if it was not done."""
    with tempfile.TemporaryDirectory() as name:
        wait_for_quiet(0.25)
        ran = measure([*command, task], Path(name), environment(Path(name)) | env, timeout=120)
    if ran.code != 0:
        raise RuntimeError(f"{' '.join(command)} {task}: exit {ran.code}\n{ran.output[-2000:]}")
    found = json.loads(ran.output.rstrip().rpartition("\n")[2])
    if command[-1] == OURS and found.get("heavy"):
        raise RuntimeError(f"importing {OURS} imports {', '.join(found['heavy'])}")
    return Ran(ran, found)


def rows(python: Path, runs: int) -> list[Row]:
    """Every figure; the first run of each writes byte code and does not count."""
    ours = [sys.executable, "-P", str(PROBE), OURS]
    theirs = [str(python), "-P", str(PROBE), THEIRS]
    quiet = dict(PEER.env) | {"PYTHONPATH": ""}
    run(ours, "import", {})
    run(theirs, "import", quiet)
    found: list[Row] = []
    for task in dict.fromkeys(one.task for one in FIGURES):
        pairs = [(run(ours, task, {}), run(theirs, task, quiet)) for _ in range(runs)]
        mine, others = [a for a, _ in pairs], [b for _, b in pairs]
        for figure in (one for one in FIGURES if one.task == task):
            found.append(row_of(figure, mine, others))
            print("  ".join(found[-1].cells()), flush=True)
    return found


def pasted(text: str, found: Sequence[Row]) -> str:
    """The page with the table between its marks replaced."""
    if not MARKED.search(text):
        sys.exit("the page has no <!-- scenarios --> … <!-- /scenarios -->")
    head = [
        "",
        "holodeck.scenario",
        f"langwatch-scenario {PEER.version}",
        "theirs / ours",
        "others",
    ]
    lines = [head, ["---"] * len(head), *(row.cells() for row in found)]
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    return MARKED.sub(lambda mark: f"{mark[1]}\n{table}\n\n{mark[2]}", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--home", type=Path, default=default_home())
    parser.add_argument("--check", action="store_true", help="exit with 1 when a goal is missed")
    parser.add_argument("--page", type=Path, help="write the table into this page")
    given = parser.parse_args()
    python = given.home / PEER.name / "bin" / "python"
    if not python.is_file():
        print(f"{python} is not there; run benchmarks/peers/install.py", file=sys.stderr)
        return 2
    try:
        found = rows(python, given.runs)
    except RuntimeError as error:
        print(f"not counted: {error}", file=sys.stderr)
        return 1
    if given.page:
        given.page.write_text(pasted(given.page.read_text("utf-8"), found), "utf-8")
    missed = [row.figure.what for row in found if row.verdict == MISSED]
    print(f"{len(missed)} missed" + "".join(f"\n  {one}" for one in missed))
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
