"""How long and how much memory 10,000 test cases take to be read from JSON Lines.

    python benchmarks/loading.py [--cases 10000] [--runs 5] [--check]

One process each: it reads a small agent first, so that libraries do not count, then the large one,
then checks it as `holodeck validate` does. `--check` exits with 1 when a goal is missed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

SECONDS = 1.0
MEGABYTES = 100.0
AGENT = """\
name: large
backend: "bot:answer"
evaluations: {{metrics: [{{metric: contains}}]}}
test_cases_file: {file}
"""
SCRIPT = """\
import json, time
from holodeck.config.check import check
from holodeck.config.loader import ConfigLoader

def used():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

check(ConfigLoader().load_agent_yaml("small.yaml"))
before, started = used(), time.perf_counter()
agent = ConfigLoader().load_agent_yaml("large.yaml")
loaded = time.perf_counter() - started
grown = used() - before
found = check(agent)
checked = time.perf_counter() - started - loaded
print(json.dumps([len(agent.test_cases), len(found), loaded, checked, grown]))
"""


@dataclass(frozen=True)
class Load:
    """One process's figures."""

    load_s: float
    check_s: float
    grown_mb: float


def prepare(folder: Path, cases: int) -> None:
    """An agent with that many cases, and one with a single case."""
    for name, count in (("small", 1), ("large", cases)):
        rows = [json.dumps(case(number)) for number in range(count)]
        (folder / f"{name}.jsonl").write_text("\n".join(rows), "utf-8")
        (folder / f"{name}.yaml").write_text(AGENT.format(file=f"{name}.jsonl"), "utf-8")
    (folder / "bot.py").write_text("def answer(message):\n    return message\n", "utf-8")


def case(number: int) -> dict[str, object]:
    return {
        "name": f"case {number}",
        "input": f"What is {number} + 1? Answer with one number and nothing else, please.",
        "ground_truth": str(number + 1),
        "tags": ["smoke" if number % 10 == 0 else "full"],
        "expected_tools": ["add"],
    }


def run(folder: Path, cases: int) -> Load:
    """One process. Raises RuntimeError unless it read every case and found no fault."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    read, found, load_s, check_s, grown_mb = json.loads(done.stdout)
    if (read, found) != (cases, 0):
        raise RuntimeError(f"{read} cases of {cases} read, {found} findings")
    return Load(load_s, check_s, grown_mb)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, given.cases)
        runs = [run(folder, given.cases) for _ in range(given.runs)]
    load_s = median(one.load_s for one in runs)
    grown_mb = median(one.grown_mb for one in runs)
    print(f"{given.cases} cases, median of {given.runs} processes:")
    print(f"  read     {load_s:6.2f} s   (goal {SECONDS:g} s)")
    print(f"  checked  {median(one.check_s for one in runs):6.2f} s")
    print(f"  memory   {grown_mb:6.0f} MB  (goal {MEGABYTES:g} MB)")
    is_met = load_s <= SECONDS and grown_mb <= MEGABYTES
    return 0 if is_met or not given.check else 1


if __name__ == "__main__":
    sys.exit(main())
