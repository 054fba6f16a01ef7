"""How far worker processes scale: what was measured with one and two, and a simulation to eight.

    python benchmarks/workers.py [--cases 400] [--ms 10]

An agent computes so many milliseconds per case. Measured are the CPU time that a case costs the
parent and a worker, beside the agent's own, and the start of a worker. The simulation gives each
worker a core and the parent one: the parent handles one case after the other, a worker runs one
case after the other. Efficiency is the time of one process, divided by that of the workers and by
their number, without and with the start.
"""

import argparse
import heapq
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CODE = """\
import time


def answer(message):
    started = time.thread_time()
    while time.thread_time() - started < {seconds}:
        pass
    return "OK: " + message
"""
MOST = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--ms", type=float, default=10.0, help="of computing per case")
    given = parser.parse_args()
    cases, burn = given.cases, given.ms / 1000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few = [measured(folder, 2, burn, workers) for workers in (1, 2)]
        many = [measured(folder, cases, burn, workers) for workers in (1, 2)]
    further = cases - 2
    parent = (many[1][1] - few[1][1]) / further
    worker = (many[1][2] - few[1][2]) / further - burn
    alone = (many[0][1] - few[0][1]) / further
    start = few[1][0] - few[0][0]
    print(f"{cases} cases of {given.ms:g} ms, {os.cpu_count()} cores")
    for number, (wall, own, children) in enumerate(many, 1):
        print(
            f"  {number} process{'es' * (number > 1)}: {wall:.2f} s, CPU {own + children:.2f} s,"
            f" parent {own:.2f} s"
        )
    print(f"  a further case: one process {alone * 1000:.2f} ms")
    print(f"  with workers: parent {parent * 1000:.2f} ms, worker {(burn + worker) * 1000:.2f} ms")
    print("| workers | simulated | efficiency | with the start |\n| --- | --- | --- | --- |")
    for workers in range(1, MOST + 1):
        took = simulated(cases, workers, parent, burn + worker)
        ideal = cases * alone / workers
        print(f"| {workers} | {took:.2f} s | {ideal / took:.2f} | {ideal / (took + start):.2f} |")


def measured(folder: Path, cases: int, burn: float, workers: int) -> tuple[float, float, float]:
    """Return the seconds of a run, and the CPU seconds of its first process and of the others."""
    (folder / "agent.py").write_text(CODE.format(seconds=burn))
    own = [
        {"name": f"c{n}", "input": f"{n}", "evaluations": [{"metric": "contains", "value": "OK"}]}
        for n in range(cases)
    ]
    agent = {"name": "burns", "backend": "agent:answer", "test_cases": own}
    (folder / "agent.yaml").write_text(json.dumps(agent))
    command = [sys.executable, "-P", "-c", PARENT, "test", "agent.yaml", "-q"]
    started = time.perf_counter()
    ran = subprocess.run(
        [*command, "--workers", str(workers)], cwd=folder, check=True, capture_output=True
    )
    wall = time.perf_counter() - started
    parent, children = json.loads(ran.stderr.splitlines()[-1])
    return wall, parent, children


PARENT = """\
import atexit, json, resource, sys

def tell():
    of = [resource.getrusage(one) for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps([one.ru_utime + one.ru_stime for one in of]), file=sys.stderr)

atexit.register(tell)
from holodeck.__main__ import main
main()
"""


def simulated(cases: int, workers: int, parent_s: float, worker_s: float) -> float:
    """Return the seconds of a run whose parent and workers have a core each."""
    free = [0.0] * workers  # when each worker can begin the next case
    parent, ends = 0.0, 0.0
    for _ in range(cases):
        begin = max(heapq.heappop(free), parent)
        parent = begin + parent_s
        done = parent + worker_s
        heapq.heappush(free, done)
        ends = max(ends, done)
    return ends


if __name__ == "__main__":
    main()
