"""Do the tests see a small mistake in what makes verdicts? `python benchmarks/mutants --help`."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Self

import hits as known_hits
from hits import Hits
from mutations import Mutant
from parts import PARTS, all_mutants, at_places, draw
from sandbox import Sandbox
from verdicts import Results, Verdict, equivalents, proportion, stale_equivalents, table

TESTS = (
    "tests/unit/lib/test_runner", "tests/unit/lib/evaluators", "tests/unit/lib/selection",
    "tests/unit/lib/records", "tests/unit/lib/judging", "tests/unit/lib/conversation",
    "tests/unit/config", "tests/unit/models", "tests/unit/cli", "tests/api", "tests/contract",
    "tests/properties", "tests/reliability", "tests/e2e",
)  # fmt: skip
FIRST = 30
"""So many tests are run first; most mutants do not live longer, and collecting more takes time."""
_SURVIVED, _NO_TEST = 0, 5


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
    os.nice(19)
    work = Path(options.work)
    work.mkdir(parents=True, exist_ok=True)
    sandbox = Sandbox(work)
    mutants = all_mutants(sandbox.src, options.part, options.only)
    every = list(chain.from_iterable(mutants.values()))
    chosen = draw(mutants, options.sample, options.seed)
    if options.at:
        chosen = list(at_places(mutants, options.at))
    print(f"{len(every)} mutants, {len(chosen)} of them drawn, seed {options.seed}", flush=True)
    for entry in stale_equivalents(every, sandbox.src):
        print(f"equivalents.toml: no such mutant any more: {entry}", flush=True)
    if options.list:
        for mutant in chosen:
            print(f"src/{mutant.path}:{mutant.line} {mutant.kind} → {mutant.text}")
        return 0
    with Worker(sandbox) as worker:
        verdicts = _try_all(chosen, sandbox, worker, options)
        doubtful = _doubtful(verdicts, worker)
    return report(verdicts, doubtful, options)


def _try_all(
    chosen: Sequence[Mutant], sandbox: Sandbox, worker: Worker, options: argparse.Namespace
) -> list[Verdict]:
    hits = _hits(worker, sandbox, Path(options.work), options)
    results = Results(Path(options.results) if options.results else None)
    seen = results.seen() if options.resume else {}
    verdicts = []
    for number, mutant in enumerate(chosen, 1):
        lines = mutant.lines((sandbox.src / mutant.path).read_bytes())
        earlier = seen.get((mutant.path, mutant.line, *lines))
        if earlier is not None:
            verdicts.append(Verdict(mutant, *lines, *earlier))
            continue
        verdict = try_mutant(mutant, sandbox, worker, hits, options.seconds)
        verdicts.append(verdict)
        hits.killers.add((mutant.path, verdict.by))
        results.add(verdict, options.seed)
        if verdict.kind != "killed":
            print(f"[{number}] {verdict}", flush=True)
        if number % 10 == 0:
            print(f"{number} of {len(chosen)} are tried", flush=True)
    return verdicts


def _hits(worker: Worker, sandbox: Sandbox, work: Path, options: argparse.Namespace) -> Hits:
    kept = work / "map.json"
    hits = Hits() if options.fresh else known_hits.load(kept)
    stale = known_hits.stale_files(hits, sandbox, options.learn or TESTS)
    if stale:
        print(f"{len(stale)} files of tests are run to see what they reach", flush=True)
        for mapped in known_hits.record(hits, sandbox, worker.ask, stale, work):
            known_hits.save(mapped, kept)
        hits = known_hits.load(kept)
    useless = sorted(set().union(*hits.by_function.values()) - hits.seconds.keys() - {""})
    if useless:
        print(f"{len(useless)} tests do not pass in the copy, so they see no mutant:", *useless[:5])
    return hits


def try_mutant(
    mutant: Mutant, sandbox: Sandbox, worker: Worker, hits: Hits, seconds: float
) -> Verdict:
    """Run the tests that may see the mutant, at most for so many seconds."""
    source = (sandbox.src / mutant.path).read_bytes()
    before, after = mutant.lines(source)
    why = equivalents().get((mutant.path, before, after))
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
            print(verdict)
    print(table(verdicts))
    seen = proportion(Counter(verdict.kind for verdict in verdicts))
    rate = 1.0 if seen.value is None else seen.value
    low = (seen.interval or (1.0, 1.0))[0]
    print(
        f"seed {options.seed}: {len(verdicts)} mutants, {seen.count} of {seen.of} that are not"
        f" equivalent are seen: {rate:.1%}, at least {low:.1%} (95 %, Wilson)"
    )
    return int(100 * rate < options.goal)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python benchmarks/mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=150, help="how many are tried (150)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    parser.add_argument("--seconds", type=float, default=60, help="of tests for each (60)")
    parser.add_argument("--goal", type=float, default=95, help="percent for exit code 0 (95)")
    parser.add_argument("--part", action="append", choices=PARTS, help="only of this part")
    parser.add_argument("--only", action="append", default=[], help="paths that hold this text")
    parser.add_argument("--at", action="append", default=[], help="every mutant of FILE:LINE")
    parser.add_argument("--list", action="store_true", help="print them, run nothing")
    parser.add_argument("--fresh", action="store_true", help="run every test for the map again")
    parser.add_argument("--learn", action="append", help="only these changed files of tests")
    parser.add_argument("--results", help="add a line for each that was tried to this JSONL file")
    parser.add_argument("--resume", action="store_true", help="not those that --results has killed")
    folder = Path(tempfile.gettempdir()) / f"holodeck-mutants-{os.getuid()}"
    parser.add_argument("--work", default=str(folder), help="folder of the copy and the map")
    options = parser.parse_args()
    options.part = options.part or []
    if options.resume and not options.results:
        parser.error("--resume needs --results FILE")
    return options


if __name__ == "__main__":
    sys.exit(main())
