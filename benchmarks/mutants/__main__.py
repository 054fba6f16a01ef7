"""Do the tests see a small mistake in what makes verdicts? `python benchmarks/mutants --help`."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Self

import hits as known_hits
from hits import Hits
from mutations import Mutant, mutants_of
from sandbox import Sandbox

VERDICT_MODULES = (
    "holodeck/config/check.py",
    "holodeck/config/check_*.py",
    "holodeck/lib/evaluators/*.py",
    "holodeck/lib/records/run_store.py",
    "holodeck/lib/selection/*.py",
    *(
        f"holodeck/lib/test_runner/{name}.py"
        for name in (
            "recorded_answers", "budget", "case_run", "case_runner", "conversation_outcome",
            "conversation_grading", "criteria", "history", "eval_kwargs_builder", "grading",
            "observer", "pass_at_k", "conversation_runner", "repeats", "report_case",
            "report_conversation", "reporter", "rescore", "script_steps", "stop_policy",
            "summary", "tool_checks", "tries", "turn_run", "verdict",
        )
    ),
    "holodeck/models/outcome.py",
    "holodeck/models/test_result.py",
)  # fmt: skip
"""What decides whether a case passes, which cases run, what is reported and the exit code."""
ELSEWHERE = ("holodeck/lib/evaluators/azure*.py",)
"""Of these, the modules whose library the tests replace."""

TESTS = (
    "tests/unit/lib/test_runner", "tests/unit/lib/evaluators", "tests/unit/lib/selection",
    "tests/unit/lib/records", "tests/unit/lib/judging", "tests/unit/lib/conversation",
    "tests/unit/config", "tests/unit/models", "tests/unit/cli", "tests/api", "tests/contract",
    "tests/properties", "tests/reliability", "tests/e2e",
)  # fmt: skip
FIRST = 30
"""So many tests are run first; most mutants do not live longer, and collecting more takes time."""
EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
_SURVIVED, _NO_TEST = 0, 5
_SEEN = {"killed", "hung"}


@dataclass
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    before: str
    after: str
    kind: str
    """`killed`, `survived`, `hung` or `equivalent`."""
    by: str = ""
    """The test that saw it, or the reason why none can."""
    ran: int = 0
    tests: int = 0
    """How many tests run the function."""

    def __str__(self) -> str:
        place = f"src/{self.mutant.path}:{self.mutant.line}"
        lines = [f"{self.kind} {place} {self.mutant.function} ({self.mutant.kind})"]
        lines += [f"    - {self.before}", f"    + {self.after}"]
        if self.kind == "survived":
            lines.append(f"    {self.ran} of {self.tests} tests that run it")
        elif self.by:
            lines.append(f"    {self.by}")
        return "\n".join(lines)


@dataclass
class Worker:
    """The process that runs tests."""

    sandbox: Sandbox
    process: subprocess.Popen[str] = field(init=False)

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [str(self.sandbox.python), str(Path(__file__).with_name("worker.py"))],
            cwd=self.sandbox.tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())  # type: ignore[no-any-return]


def main() -> int:
    """0 if the rate is reached, 1 if not."""
    options = _options()
    os.nice(10)
    work = Path(options.work)
    work.mkdir(parents=True, exist_ok=True)
    sandbox = Sandbox(work)
    mutants = all_mutants(sandbox.src, options.only)
    chosen = choose(mutants, options)
    print(f"{len(mutants)} mutants, {len(chosen)} of them tried, seed {options.seed}", flush=True)
    for entry in _stale_equivalents(mutants, sandbox.src, options.only):
        print(f"equivalents.toml: no such mutant any more: {entry}", flush=True)
    if options.list:
        for one in chosen:
            print(f"src/{one.path}:{one.line} {one.kind} → {one.text}")
        return 0
    with Worker(sandbox) as worker:
        hits = _hits(worker, sandbox, work, options)
        verdicts = []
        for number, mutant in enumerate(chosen, 1):
            verdict = try_mutant(mutant, sandbox, worker, hits, options.seconds)
            verdicts.append(verdict)
            if verdict.kind != "killed":
                print(f"[{number}] {verdict}", flush=True)
            if number % 10 == 0:
                seen = sum(one.kind in _SEEN for one in verdicts)
                print(f"{number} tried, {seen} seen", flush=True)
        doubtful = _doubtful(verdicts, worker)
    return report(verdicts, doubtful, options)


def all_mutants(src: Path, only: Sequence[str] = ()) -> list[Mutant]:
    """Every mutant of the modules that make verdicts, in the order of their paths and lines."""
    found: list[Mutant] = []
    for path in sorted(src.rglob("*.py")):
        name = path.relative_to(src).as_posix()
        wanted = any(fnmatch(name, one) for one in VERDICT_MODULES)
        left_out = any(fnmatch(name, one) for one in ELSEWHERE) or name.count("/") > 3
        is_only = not only or any(fnmatch(name, f"*{one}*") for one in only)
        if wanted and is_only and not left_out:
            found += mutants_of(name, path.read_bytes())
    return found


def choose(mutants: Sequence[Mutant], options: argparse.Namespace) -> list[Mutant]:
    if options.at:
        places = [place.removeprefix("src/").rpartition(":")[::2] for place in options.at]
        return [
            one
            for one in mutants
            if any(one.path.endswith(path) and str(one.line) == line for path, line in places)
        ]
    number = min(options.sample, len(mutants))
    return random.Random(options.seed).sample(list(mutants), number)


def _hits(worker: Worker, sandbox: Sandbox, work: Path, options: argparse.Namespace) -> Hits:
    kept = work / "map.json"
    hits = Hits() if options.fresh else known_hits.load(kept)
    stale = known_hits.stale_files(hits, sandbox, options.learn or TESTS)
    if stale:
        print(f"{len(stale)} files of tests are run to see what they reach", flush=True)
        hits = known_hits.record(hits, sandbox, worker.ask, stale, work)
        known_hits.save(hits, kept)
    listed = worker.ask({"tests": TESTS, "seconds": 600, "collect": True})
    there = {row[0] for row in listed["rows"]}
    hits.seconds = {test: one for test, one in hits.seconds.items() if test in there}
    return hits


def try_mutant(
    mutant: Mutant, sandbox: Sandbox, worker: Worker, hits: Hits, seconds: float
) -> Verdict:
    """Run the tests that may see the mutant, at most for so many seconds."""
    source = (sandbox.src / mutant.path).read_bytes()
    before, after = mutant.lines(source)
    why = _equivalents().get((mutant.path, before, after))
    if why is not None:
        return Verdict(mutant, before, after, "equivalent", why)
    tests = hits.tests_for(mutant, sandbox)
    verdict = Verdict(mutant, before, after, "survived", tests=len(tests))
    started = time.monotonic()
    sandbox.write(mutant.path, mutant.applied(source))
    try:
        for part in (tests[:FIRST], tests[FIRST:]):
            left = seconds - (time.monotonic() - started)
            if not part or left <= 0:
                break
            _run(verdict, worker, _affordable(part, hits, left), left)
            if verdict.kind != "survived":
                break
    finally:
        sandbox.write(mutant.path, source)
    return verdict


def _run(verdict: Verdict, worker: Worker, tests: list[str], seconds: float) -> None:
    done = worker.ask({"tests": tests, "seconds": seconds})
    failed = [row[0] for row in done["rows"] if row[1] == "failed"]
    verdict.ran += len(done["rows"])
    if done["code"] == "hung":
        verdict.kind = "hung"
    elif failed:
        verdict.kind, verdict.by = "killed", failed[0]
    elif done["code"] not in {_SURVIVED, _NO_TEST} and "no time is left" not in done["said"]:
        verdict.kind, verdict.by = "killed", f"pytest could not go on: {done['said'][-200:]}"


def _affordable(tests: Sequence[str], hits: Hits, seconds: float) -> list[str]:
    """The first tests that together take no longer; at least one."""
    found, spent = list(tests[:1]), 0.0
    for test in tests[1:]:
        spent += hits.seconds[test] + 0.02
        if spent > seconds:
            break
        found.append(test)
    return found


def _equivalents() -> dict[tuple[str, str, str], str]:
    """Mutants that change nothing that can be seen, each with its reason."""
    if not EQUIVALENTS.is_file():
        return {}
    entries = tomllib.loads(EQUIVALENTS.read_text(encoding="utf-8")).get("equivalent", [])
    return {("holodeck/" + one["path"], one["before"], one["after"]): one["why"] for one in entries}


def _stale_equivalents(mutants: Sequence[Mutant], src: Path, only: Sequence[str]) -> list[str]:
    """Entries that no mutant fits; nothing is known where only some modules are looked at."""
    wanted = {} if only else _equivalents()
    paths = {path for path, _, _ in wanted}
    sources = {path: (src / path).read_bytes() for path in paths if (src / path).is_file()}
    known = {(one.path, *one.lines(sources[one.path])) for one in mutants if one.path in sources}
    return [
        f"{path}: {after}" for path, before, after in wanted if (path, before, after) not in known
    ]


def _doubtful(verdicts: Sequence[Verdict], worker: Worker) -> list[str]:
    """Tests that saw a mutant, but fail without one, too."""
    killers = sorted({one.by for one in verdicts if one.kind == "killed" and "::" in one.by})
    if not killers:
        return []
    done = worker.ask({"tests": killers, "seconds": 1800, "all": True})
    return [test for test, outcome, _ in done["rows"] if outcome == "failed"]


def report(verdicts: Sequence[Verdict], doubtful: list[str], options: argparse.Namespace) -> int:
    for verdict in verdicts:
        if verdict.by in doubtful:
            verdict.kind, verdict.by = "survived", f"only {verdict.by}, which fails without it"
    count = Counter(one.kind for one in verdicts)
    seen = count["killed"] + count["hung"]
    judged = len(verdicts) - count["equivalent"]
    for verdict in verdicts:
        if verdict.by.startswith("only "):
            print(verdict)
    rate = 100 * seen / judged if judged else 100.0
    raw = 100 * seen / len(verdicts) if verdicts else 100.0
    print(
        f"seed {options.seed}: {len(verdicts)} mutants, {count['killed']} killed,"
        f" {count['hung']} hung, {count['survived']} survived, {count['equivalent']} equivalent:"
        f" {rate:.1f} % are seen ({raw:.1f} % with the equivalent ones)"
    )
    if options.json:
        rows = [
            {
                "place": f"src/{one.mutant.path}:{one.mutant.line}",
                "kind": one.mutant.kind,
                "before": one.before,
                "after": one.after,
                "verdict": one.kind,
                "by": one.by,
            }
            for one in verdicts
        ]
        document = {"seed": options.seed, "rate": rate, "mutants": rows}
        Path(options.json).write_text(json.dumps(document, indent=2), encoding="utf-8")
    return int(rate < options.goal)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python benchmarks/mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=150, help="how many are tried (150)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    parser.add_argument("--seconds", type=float, default=60, help="of tests for each (60)")
    parser.add_argument("--goal", type=float, default=95, help="percent for exit code 0 (95)")
    parser.add_argument("--only", action="append", default=[], help="paths that hold this text")
    parser.add_argument("--at", action="append", default=[], help="every mutant of FILE:LINE")
    parser.add_argument("--list", action="store_true", help="print them, run nothing")
    parser.add_argument("--fresh", action="store_true", help="run every test for the map again")
    parser.add_argument("--learn", action="append", help="only these changed files of tests")
    parser.add_argument("--json", help="write what became of each to this file")
    folder = Path(tempfile.gettempdir()) / f"holodeck-mutants-{os.getuid()}"
    parser.add_argument("--work", default=str(folder), help="folder of the copy and the map")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
