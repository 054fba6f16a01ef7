"""How much memory a run of very many test cases takes, with its record and a JSON report.

    python benchmarks/memory.py [--cases 100000] [--report FILE] [--then report,compare] [--check]

The cases are in JSON Lines, on the backend `chat`; the local model answers at once. The peak is
that of the whole process. `--then` also measures commands that read the record: `report`, `merge`
(of two halves, which run as shards) and `compare` (with itself). `--check` exits with 1 when the
goal is missed.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from contestants import environment, holodeck_command
from loopback import server
from measure import measure

GOALS_MB = {10_000: 160}
AGENT = """\
name: large
backend: chat
model: {{provider: openai, name: fake, endpoint: "{url}", api_key: x}}
instructions: {{inline: "Do what the user says."}}
evaluations: {{metrics: [{{metric: contains}}]}}
test_cases_file: cases.jsonl
"""
LONGEST_S = 1200.0
THEN = ("report", "merge", "compare")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--report", default="report.json", metavar="FILE")
    parser.add_argument("--then", default="", metavar="COMMANDS", help=", ".join(THEN))
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    given.then = [one for one in given.then.split(",") if one]
    if unknown := set(given.then) - set(THEN):
        parser.error(f"--then: {', '.join(sorted(unknown))}: expected {', '.join(THEN)}")
    return given


def measure_readers(folder: Path, wanted: list[str]) -> bool:
    """Measure the commands that read the record of the run; return whether all worked."""
    variables, test = environment(folder), ["test", "agent.yaml", "--quiet"]
    [run] = [one.name for one in (folder / ".holodeck" / "runs").iterdir() if one.is_dir()]
    shards: list[str] = []
    for shard in ("1/2", "2/2") if "merge" in wanted else ():
        command = [*holodeck_command(), *test, "--shard", shard]
        measure(command, folder, variables, LONGEST_S)
        shards.append(max(one.name for one in (folder / ".holodeck" / "runs").iterdir()))
    commands = {
        "report": ["report", run, "-o", "again.json"],
        "merge": ["report", "--merge", *shards, "-o", "merged.json"],
        "compare": ["compare", run, run],
    }
    works = True
    for name in wanted:
        ran = measure([*holodeck_command(), *commands[name]], folder, variables, LONGEST_S)
        print(f"{name}: peak {ran.peak_mb:.0f} MB, {ran.cpu_s:.1f} s of CPU, {ran.wall_s:.1f} s")
        if ran.code != 0:
            print(ran.output[-500:], file=sys.stderr)
            works = False
    return works


def main() -> int:
    given = options()
    with tempfile.TemporaryDirectory(prefix="holodeck-benchmark-") as name, server(0) as url:
        folder = Path(name)
        (folder / "agent.yaml").write_text(AGENT.format(url=url), "utf-8")
        with (folder / "cases.jsonl").open("w", encoding="utf-8") as file:
            for number in range(given.cases):
                said = f"Say case-{number:06} please"
                file.write(json.dumps({"input": said, "ground_truth": f"OK: {said}"}) + "\n")
        command = [*holodeck_command(), "test", "agent.yaml", "--quiet", "-o", given.report]
        ran = measure(command, folder, environment(folder), LONGEST_S)
        size = (folder / given.report).stat().st_size if ran.code == 0 else 0
        is_read = ran.code != 0 or measure_readers(folder, given.then)
    if ran.code != 0:
        print(ran.output[-500:], file=sys.stderr)
        return 1
    goal = GOALS_MB.get(given.cases)
    print(
        f"{given.cases:,} cases: peak {ran.peak_mb:.0f} MB"
        + (f" (goal {goal})" if goal else "")
        + f", {ran.cpu_s:.1f} s of CPU, {ran.wall_s:.1f} s, {given.report} {size / 1e6:.1f} MB"
    )
    return int(not is_read or (given.check and goal is not None and ran.peak_mb > goal))


if __name__ == "__main__":
    sys.exit(main())
