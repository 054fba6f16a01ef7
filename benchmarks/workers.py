"""How far worker processes scale: what was measured with one and two, and a simulation to eight.

    python benchmarks/workers.py [--cases 400] [--ms 10]
    python benchmarks/workers.py --latency-ms 200,50 [--cases 1000] [--runs 3]

An agent computes so many milliseconds per case. Measured are the CPU time that a case costs the
parent and a worker, beside the agent's own, and the start of a worker. The simulation gives each
worker a core and the parent one: the parent handles one case after the other, a worker runs one
case after the other. Efficiency is the time of one process, divided by that of the workers and by
their number, without and with the start.

With latencies, an agent on Semantic Kernel asks a server that answers after so long, 100 cases at
once, in one process and in two workers in turn. "Floor" is the time of one case and of the rounds
of waiting after the first, which no number of workers can beat.
"""

import argparse
import heapq
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from contestants import AGENTS, CASE
from loopback import configure, server, stats
from tasks import PARALLEL, SEMANTIC_KERNEL

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
    parser.add_argument("--latency-ms", default="", help="measure Semantic Kernel, such as 200,50")
    parser.add_argument("--runs", type=int, default=3, help="of each, with latencies")
    given = parser.parse_args()
    if given.latency_ms:
        measure_kernel(given.cases, [float(one) for one in given.latency_ms.split(",")], given.runs)
        return
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
    return timed(folder, workers)


def timed(folder: Path, workers: int, *more: str) -> tuple[float, float, float]:
    command = [sys.executable, "-P", "-c", PARENT, "test", "agent.yaml", "-q", *more]
    started = time.perf_counter()
    ran = subprocess.run(
        [*command, "--workers", str(workers)], cwd=folder, check=True, capture_output=True
    )
    wall = time.perf_counter() - started
    parent, children = json.loads(ran.stderr.splitlines()[-1])
    return wall, parent, children


def measure_kernel(cases: int, latencies: Sequence[float], runs: int) -> None:
    """Print what cases on Semantic Kernel take in one process and in two workers."""
    print(f"{cases} cases on Semantic Kernel, {PARALLEL} at once, {os.cpu_count()} cores")
    print("| latency | processes | wall | floor | CPU of the parent | of workers | of the server |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name, server(latencies[0]) as url:
        folder = Path(name)
        head = f"name: kernel\n{AGENTS[SEMANTIC_KERNEL].format(url=url)}test_cases:\n"
        for latency in latencies:
            configure(url, latency_ms=latency)
            (folder / "agent.yaml").write_text(head + CASE.format(i=0))
            first = statistics.median(timed(folder, 1)[0] for _ in range(runs))
            floor = first + (math.ceil(cases / PARALLEL) - 1) * latency / 1000
            (folder / "agent.yaml").write_text(head + "".join(map(case_text, range(cases))))
            seen: dict[int, list[tuple[float, ...]]] = {1: [], 2: []}
            for _ in range(runs):
                for workers, rows in seen.items():
                    before = stats(url)["cpu_s"]
                    ran = timed(folder, workers, "-j", str(PARALLEL))
                    rows.append((*ran, stats(url)["cpu_s"] - before))
            for workers, rows in seen.items():
                wall, parent, children, served = map(statistics.median, zip(*rows, strict=True))
                print(
                    f"| {latency:g} ms | {workers} | {wall:.2f} s | {floor:.2f} s | {parent:.2f} s"
                    f" | {children:.2f} s | {served:.2f} s |"
                )


def case_text(number: int) -> str:
    return CASE.format(i=number)


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
