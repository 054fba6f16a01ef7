"""How long 1,000 instant cases take through `holodeck.suite`, and through agenticassure.

    python benchmarks/suite.py [--cases 1000] [--runs 3] [--home FOLDER] [--check]

The same file of scenarios, scored with `passfail`, by an agent that answers at once: the command
line of agenticassure, a script on its Runner, and the same script on ours; whole processes, run in
turn. A run counts only when every case passed. `--check` exits with 1 when ours takes longer than
their command line, or when `import holodeck.suite` takes more than 150 ms of the processor.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from measure import Measured, measure, median_ratio, middle
from peers.homes import default_home

GOAL = 1.0
IMPORT_MS = 150
AGENT = """\
from {package} import AgentResult

class Agent:
    def run(self, input, context=None):
        return AgentResult(output="Yes, " + input)
"""
SCRIPT = """\
from {package}.loader import load_scenarios
from {package}.runner import Runner
from agent import Agent

result = Runner(Agent()).run_suite(load_scenarios("suite.yaml"))
print(sum(one.passed for one in result.scenario_results), "passed")
"""
CASE = "  - {{name: c{i}, input: case {i}, expected_output: CASE {i}}}\n"


def prepare(folder: Path, package: str, cases: int) -> Path:
    """A folder with the scenarios, the agent and the script for a package."""
    folder.mkdir()
    rows = "".join(CASE.format(i=i) for i in range(cases))
    (folder / "suite.yaml").write_text(f"suite: {{name: instant}}\nscenarios:\n{rows}", "utf-8")
    (folder / "agent.py").write_text(AGENT.format(package=package), "utf-8")
    (folder / "script.py").write_text(SCRIPT.format(package=package), "utf-8")
    return folder


def run(command: Sequence[str], folder: Path, cases: int) -> Measured:
    """One whole process. Raises RuntimeError if it did not pass every case."""
    ran = measure(command, folder, {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder)})
    is_table = "100% passed" in ran.output and ran.output.count(" PASS ") == cases
    if ran.code != 0 or not (is_table or f"{cases} passed" in ran.output):
        raise RuntimeError(f"{command[0]}: exit {ran.code}\n{ran.output[-2000:]}")
    return ran


def import_ms(folder: Path, runs: int) -> float:
    """What `import holodeck.suite` costs the processor beyond the start of Python; the median."""
    costs = []
    for _ in range(runs + 1):  # the first writes byte code
        ours, bare = (
            measure([sys.executable, "-c", code], folder, {"PATH": "/usr/bin:/bin"}).cpu_s
            for code in ("import holodeck.suite", "pass")
        )
        costs.append((ours - bare) * 1000)
    return median(costs[1:])


def is_met(what: str, found: float, goal: float) -> bool:
    """Whether the goal was met; prints the line."""
    print(f"{what}: {found:.2f}   goal <= {goal:g}  {'ok' if found <= goal else 'MISSED'}")
    return found <= goal


def benchmark(bin_: Path, cases: int, runs: int) -> bool:
    """Print a row for each; whether the goals were met."""
    with tempfile.TemporaryDirectory() as name:
        ours = prepare(Path(name) / "ours", "holodeck.suite", cases)
        theirs = prepare(Path(name) / "theirs", "agenticassure", cases)
        cli = [str(bin_ / "agenticassure"), "run", "suite.yaml", "--adapter", "agent.Agent"]
        contestants = {
            "holodeck.suite": ([sys.executable, "script.py"], ours),
            "agenticassure, command": (cli, theirs),
            "agenticassure, Runner": ([str(bin_ / "python"), "script.py"], theirs),
        }
        found: dict[str, list[Measured]] = {one: [] for one in contestants}
        for _ in range(runs + 1):
            for one, (command, folder) in contestants.items():
                found[one].append(run(command, folder, cases))
        import_is_quick = is_met(
            "import holodeck.suite, ms of CPU", import_ms(ours, runs), IMPORT_MS
        )
    kept = {one: measured[1:] for one, measured in found.items()}  # the first wrote byte code
    for one, measured in kept.items():
        at = middle(measured)
        print(f"{one:24}{at.wall_s:8.2f} s  {at.cpu_s:6.2f} s of CPU  {at.peak_mb:5.0f} MB")
    ratio = median_ratio(kept["holodeck.suite"], kept["agenticassure, command"])
    return is_met("ours / their command", ratio, GOAL) and import_is_quick


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--home", type=Path, default=default_home())
    parser.add_argument("--check", action="store_true", help="exit with 1 when a goal is missed")
    given = parser.parse_args()
    bin_ = given.home / "agenticassure" / "bin"
    if not bin_.is_dir():
        print(f"{bin_} is not there; run benchmarks/peers/install.py", file=sys.stderr)
        return 2
    try:
        met = benchmark(bin_, given.cases, given.runs)
    except RuntimeError as error:
        print(f"not counted: {error}", file=sys.stderr)
        return 1
    return 1 if given.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
