"""Whole runs of the command in turn, for benchmarks that compare two ways to reach an agent."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from measure import Measured, measure


def run_cases(folder: Path, cases: int, parallel: int) -> Measured:
    """One whole run of the folder's agent. Raises RuntimeError if it did not pass every case."""
    command = [sys.executable, "-P", "-m", "holodeck", "test", "-q", "--no-record"]
    command += ["-j", str(parallel)]
    ran = measure(command, folder, {"PATH": "/usr/bin:/bin", "HOME": str(folder)})
    if ran.code != 0 or f"{cases}/{cases} passed" not in ran.output:
        raise RuntimeError(f"{folder}: exit {ran.code}\n{ran.output[-2000:]}")
    return ran


def run_in_turn(
    folders: Mapping[str, Path], cases: int, parallel: int, runs: int
) -> dict[str, list[Measured]]:
    """The runs of each folder by its name, without the first, which wrote byte code."""
    found: dict[str, list[Measured]] = {name: [] for name in folders}
    for _ in range(runs + 1):
        for name, folder in folders.items():
            found[name].append(run_cases(folder, cases, parallel))
    return {name: measured[1:] for name, measured in found.items()}


def is_met(what: str, ratio: float, goal: float) -> bool:
    """Print the ratio; whether it is within the goal."""
    verdict = "ok" if ratio <= goal else "MISSED"
    print(f"{what}: {ratio:.2f}   goal <= {goal:g}  {verdict}")
    return ratio <= goal


def main(doc: str | None, benchmark: Callable[[int, int], bool], cases: int) -> int:
    """Run a benchmark of so many cases, or of as many as the command line says."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=cases)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="exit with 1 when the goal is missed")
    given = parser.parse_args()
    try:
        met = benchmark(given.cases, given.runs)
    except RuntimeError as error:
        print(f"not counted: {error}", file=sys.stderr)
        return 1
    return 1 if given.check and not met else 0
