"""How long test cases take whose agent is in a process of its own, and in holodeck's.

    python benchmarks/process.py [--cases 1000] [--runs 3] [--check]

The same async function, once as `backend: "bot:answer"` and once as `{type: process, target:
"bot:answer"}`; whole runs of the command, in turn, ten cases at a time. With an agent that takes
100 ms, the ratio counts; with one that answers at once, the milliseconds that a case takes longer.
A run counts only when every case passed. `--check` exits with 1 when the ratio exceeds the goal.
"""

import json
import sys
import tempfile
from pathlib import Path

from measure import Measured, median_ratio, middle
from pair import is_met, main, run_in_turn

GOAL = 1.1
AGENT = """\
import asyncio

async def answer(message):
    await asyncio.sleep({seconds})
    return "OK " + message
"""
BACKENDS = {
    "in holodeck": "bot:answer",
    "in a process": {"type": "process", "target": "bot:answer"},
}


def prepare(folder: Path, backend: object, cases: int, seconds: float) -> Path:
    """A folder with the agent and its test cases."""
    folder.mkdir(parents=True)
    check = [{"metric": "contains", "value": "OK"}]
    rows = [{"name": f"c{i}", "input": f"case {i}", "evaluations": check} for i in range(cases)]
    agent = {"name": "bot", "backend": backend, "test_cases": rows}
    (folder / "agent.yaml").write_text(json.dumps(agent), "utf-8")
    (folder / "bot.py").write_text(AGENT.format(seconds=seconds), "utf-8")
    return folder


def compare(home: Path, cases: int, runs: int, seconds: float) -> dict[str, list[Measured]]:
    """The runs of each backend with an agent that takes that long."""
    folders = {
        name: prepare(home / name / f"{seconds:g}", backend, cases, seconds)
        for name, backend in BACKENDS.items()
    }
    found = run_in_turn(folders, cases, 10, runs)
    for name, measured in found.items():
        at = middle(measured)
        print(f"{name:14}{seconds * 1000:5.0f} ms {at.wall_s:7.2f} s  {at.cpu_s:6.2f} s of CPU")
    return found


def benchmark(cases: int, runs: int) -> bool:
    """Print the runs and the figures; whether the goal was met."""
    with tempfile.TemporaryDirectory() as name:
        instant = compare(Path(name), cases, runs, 0)
        slow = compare(Path(name), cases, runs, 0.1)
    here, there = (middle(instant[backend]).wall_s for backend in BACKENDS)
    print(f"in a process, more per case: {(there - here) * 1000 / cases:.2f} ms")
    ratio = median_ratio(slow["in a process"], slow["in holodeck"])
    return is_met("in a process / in holodeck", ratio, GOAL)


if __name__ == "__main__":
    sys.exit(main(__doc__, benchmark, cases=1000))
