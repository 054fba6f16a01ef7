"""How much work and memory 10,000 test cases take to be read, checked and listed.

    python benchmarks/loading.py [--cases 10000] [--runs 5] [--check]

One process each: it does everything with a small agent first, so that libraries do not count.
Then it reads the cases from JSON Lines, checks them as `holodeck validate` does, chooses some by
name and tag and lists them, and reads a tenth of them from YAML. Seconds are those of the
processor. `--check` exits with 1 when a goal is missed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

GOALS = {"read": 1.0, "checked": 1.0, "listed": 1.5, "tenth": 0.5, "grown": 100.0}
LINES = {
    "read": "read            {:6.2f} s",
    "checked": "checked         {:6.2f} s",
    "listed": "chosen, listed  {:6.2f} s",
    "tenth": "a tenth as YAML {:6.2f} s",
    "grown": "memory          {:6.0f} MB",
}
AGENT = """\
name: large
backend: "bot:answer"
evaluations: {{metrics: [{{metric: contains}}]}}
test_cases_file: {file}
"""
SCRIPT = """\
import json, time
from holodeck.cli.selection import case_list
from holodeck.config.checks.agent import check
from holodeck.config.loader import ConfigLoader
from holodeck.lib.selection.select_cases import choose
from holodeck.lib.selection.request import parse
from holodeck.lib.selection.request import Request

def used():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

def work(name):
    at = [time.process_time()]
    def lap():
        at.append(time.process_time())
        return at[-1] - at[-2]
    before = used()
    agent = ConfigLoader().load_agent_yaml(f"{name}.yaml")
    took = {"read": lap(), "grown": used() - before}
    lap()
    findings = check(agent)
    took["checked"] = lap()
    request = Request(keyword=parse("case and not (12 or 13)"), tags=("smoke", "full"), seed=1)
    part = choose(agent.test_cases, request)
    case_list(agent.with_cases(part.indexes), None, as_json=False)
    case_list(agent, None, as_json=True)
    took["listed"] = lap()
    tenth = ConfigLoader().load_agent_yaml(f"{name}-tenth.yaml")
    took["tenth"] = lap()
    return [len(agent.test_cases), len(tenth.test_cases), len(findings)], took

work("small")
print(json.dumps(work("large")))
"""


def prepare(folder: Path, cases: int) -> None:
    """An agent with that many cases, and one with ten; a tenth of each in YAML, too."""
    for name, count in (("small", 10), ("large", cases)):
        rows = [json.dumps(case(number)) for number in range(count)]
        tenth = [line for row in rows[: count // 10] for line in block(json.loads(row))]
        (folder / f"{name}.jsonl").write_text("\n".join(rows), "utf-8")
        (folder / f"{name}-tenth-cases.yaml").write_text("\n".join(tenth), "utf-8")
        for agent, file in ((name, f"{name}.jsonl"), (f"{name}-tenth", f"{name}-tenth-cases.yaml")):
            (folder / f"{agent}.yaml").write_text(AGENT.format(file=file), "utf-8")
    (folder / "bot.py").write_text("def answer(message):\n    return message\n", "utf-8")


def case(number: int) -> dict[str, object]:
    return {
        "name": f"case {number}",
        "input": f"What is {number} + 1? Answer with one number and nothing else, please.",
        "ground_truth": str(number + 1),
        "tags": ["smoke" if number % 10 == 0 else "full"],
        "expected_tools": ["add"],
    }


def block(row: dict[str, object]) -> list[str]:
    """A case as people write it in YAML."""
    lines = [f"{key}: {json.dumps(value)}" for key, value in row.items()]
    return [f"- {lines[0]}", *(f"  {line}" for line in lines[1:])]


def run(folder: Path, cases: int) -> dict[str, float]:
    """One process's figures. Raises RuntimeError unless it read every case and found no fault."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    counts, figures = json.loads(done.stdout)
    if counts != [cases, cases // 10, 0]:
        raise RuntimeError(f"{counts[:2]} cases of {cases} read, {counts[2]} findings")
    return {name: float(figures[name]) for name in LINES}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, given.cases)
        runs = [run(folder, given.cases) for _ in range(given.runs)]
    print(f"{given.cases} cases, median of {given.runs} processes:")
    missed = False
    for name, line in LINES.items():
        found = median(one[name] for one in runs)
        missed |= found > GOALS[name]
        print(f"  {line.format(found)}  (goal {GOALS[name]:g})")
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
