"""How fast holodeck is against what is possible on this machine, in ratios.

    python benchmarks/run.py [--n 1,10,100,1000] [--parallel 100] [--runs 3] [--check]
                             [--backend semantic_kernel|chat]

A server with a fixed latency answers; the limit of N cases is the time no harness can beat:
`ceil(N / parallel) × latency`, and the start of Python with click. A run counts only when it
exits with 0, asks exactly N times and mixes up no two cases. `--check` exits with 1 when a goal
is missed; noise only ever makes a number worse, so a goal that is met is met.
"""

import argparse
import json
import math
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import Measured, Paired, measure, middle

PLAIN_IMPORT = """
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
"""
SEMANTIC_KERNEL = "semantic_kernel"
CHAT = "chat"
GOALS = {"startup": 1.3, "first request": 1.5}
RATIOS = {
    SEMANTIC_KERNEL: {1000: 1.65, 10_000: 1.3},
    CHAT: {1: 2.2, 1000: 1.2, 10_000: 1.08},
}
"""Wall time against the limit, by backend and number of cases."""
CPU_MS = {SEMANTIC_KERNEL: 2.0, CHAT: 0.5}
"""CPU that each further case may cost."""
CLICK = "import click"
CASE = """\
  - name: case-{i:05}
    input: Say case-{i:05} please
    evaluations:
      - type: standard
        metric: contains
        value: case-{i:05}
"""
AGENT = """\
name: benchmark
{backend}model: {{provider: openai, name: fake, endpoint: "{url}", api_key: x}}
instructions: {{inline: "Do what the user says."}}
test_cases:
"""


class NotCounted(Exception):
    """A run that says nothing about speed, because it did not do the work."""


@dataclass(frozen=True)
class Suite:
    """N cases run once: the process, and what the server saw of it."""

    cases: int
    run: Measured
    peak: int
    first_request_s: float
    """From the start of the process."""
    others: float


@dataclass(frozen=True)
class Bench:
    """Everything that stays the same over the runs."""

    command: list[str]
    parallel: int
    runs: int
    latency_s: float
    url: str
    folder: Path
    env: dict[str, str]
    backend: str = SEMANTIC_KERNEL

    def limit_s(self, cases: int, python_s: float) -> float:
        return math.ceil(cases / self.parallel) * self.latency_s + python_s

    def run(self, *args: str) -> Measured:
        return measure([*self.command, *args], self.folder, self.env)

    def python(self, code: str = CLICK) -> Measured:
        return measure([sys.executable, "-c", code], self.folder, self.env)

    def suite(self, cases: int) -> Suite:
        """Run N cases once; raises NotCounted."""
        ask(self.url, "_reset")
        cpu = ask(self.url, "_stats")["cpu_s"]
        agent = self.folder / f"agent-{cases}.yaml"
        run = self.run("test", agent.name, "--parallel", str(self.parallel), "--quiet")
        seen = ask(self.url, "_stats")
        if run.code != 0 or seen["requests"] != cases or seen["bleed"]:
            raise NotCounted(
                f"{cases} cases: exit {run.code}, {seen['requests']} requests,"
                f" {seen['bleed']} mixed up\n{run.output[-2000:]}"
            )
        first = seen["first_request_at"] - run.started_at
        others = max(0.0, run.others - (seen["cpu_s"] - cpu) / run.wall_s)
        return Suite(cases, run, seen["peak"], first, others)


def ask(url: str, path: str) -> dict[str, Any]:
    root = url.removesuffix("/v1")
    with urllib.request.urlopen(f"{root}/{path}", timeout=10) as answer:
        return dict(json.load(answer))


def write_agent(folder: Path, url: str, cases: int, backend: str) -> None:
    line = "" if backend == SEMANTIC_KERNEL else f"backend: {backend}\n"
    text = AGENT.format(url=url, backend=line) + "".join(CASE.format(i=i) for i in range(cases))
    (folder / f"agent-{cases}.yaml").write_text(text, "utf-8")


def environment(home: Path) -> dict[str, str]:
    """A user's plain environment: byte code is kept, no keys, loopback without a proxy."""
    kept = {k: v for k, v in os.environ.items() if k in {"PATH", "TMPDIR", "PYTHONPATH"}}
    return kept | {"HOME": str(home), "LANG": "C.UTF-8", "NO_PROXY": "127.0.0.1"}


@contextmanager
def server(latency_ms: float, fault_percent: float = 0) -> Iterator[str]:
    """The fake server's base URL, while it runs."""
    script = Path(__file__).with_name("fake_llm.py")
    command = [sys.executable, str(script), "--port", "0", "--latency-ms", str(latency_ms)]
    command += ["--fault-percent", str(fault_percent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = process.stdout.readline().removeprefix("READY ").strip()
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.send_signal(signal.SIGTERM)


def verdict(value: float, goal: float) -> str:
    return f"goal <= {goal:g}  {'ok' if value <= goal else 'MISSED'}"


def startup_rows(bench: Bench) -> tuple[bool, float]:
    """Print how long `--help` and `--version` take; whether the goal is met, and Python's start."""
    met, python = True, []
    for flag in ("--help", "--version"):
        bench.run(flag)
        ours, theirs = [], []
        for _ in range(max(5, bench.runs * 5)):
            ours.append(bench.run(flag))
            theirs.append(bench.python())
        if wrong := next((run for run in ours if run.code != 0), None):
            raise NotCounted(f"{flag}: exit {wrong.code}\n{wrong.output[-2000:]}")
        paired = Paired.of(ours, theirs)
        python += theirs
        met &= paired.ratio <= GOALS["startup"]
        print(
            f"startup  {flag:9} / import click  {paired.ratio:5.2f}x  "
            f"{verdict(paired.ratio, GOALS['startup'])}   "
            f"({paired.ours_s * 1000:.0f} ms vs {paired.theirs_s * 1000:.0f} ms)"
        )
    return met, statistics.median(run.wall_s for run in python)


def suite_rows(bench: Bench, sizes: Sequence[int], python_s: float) -> bool:
    """Print one row per number of cases; whether every goal was met."""
    print(f"\n{bench.backend}\n{'cases':>7}{'wall':>9}{'limit':>9}{'ratio':>8}", end="")
    print(f"{'CPU/case':>12}{'peak':>9}{'at once':>9}{'others':>8}")
    bench.suite(min(sizes))
    seen: dict[int, list[Suite]] = {}
    met = True
    for cases in sizes:
        seen[cases] = [bench.suite(cases) for _ in range(bench.runs)]
        text, ratio = row(bench, seen[cases], python_s)
        goal = RATIOS[bench.backend].get(cases)
        met &= goal is None or ratio <= goal
        print(text if goal is None else f"{text}   {verdict(ratio, goal)}")
    met &= cpu_row(bench, seen)
    if bench.backend == SEMANTIC_KERNEL:
        met &= first_request_row(bench, [suite for suites in seen.values() for suite in suites])
    return met


def cpu_row(bench: Bench, seen: dict[int, list[Suite]]) -> bool:
    """Print what each further case costs, from the smallest to the largest number of cases."""
    few, many = min(seen), max(seen)
    if many < 1000:  # what starting up costs differs more than so few cases cost
        return True
    cpu = {n: statistics.median(suite.run.cpu_s for suite in seen[n]) for n in (few, many)}
    each_ms = (cpu[many] - cpu[few]) * 1000 / (many - few)
    goal = CPU_MS[bench.backend]
    print(f"\nCPU of each further case  {each_ms:.2f} ms  {verdict(each_ms, goal)}")
    return each_ms <= goal


def first_request_row(bench: Bench, suites: Sequence[Suite]) -> bool:
    """Print the first request of the quietest run, as the goal is one for an idle machine.

    What importing Semantic Kernel plainly takes, in the same minute, tells how fast the machine is.
    """
    plain = min(bench.python(PLAIN_IMPORT).wall_s for _ in range(max(2, bench.runs)))
    quietest = min(suites, key=lambda suite: suite.others)
    usual = statistics.median(suite.first_request_s for suite in suites)
    seconds, goal = quietest.first_request_s, GOALS["first request"]
    print(
        f"\nfirst request after {seconds:.2f} s  {verdict(seconds, goal)}"
        f"   (the quietest run, others {quietest.others:.2f}; median {usual:.2f} s)\n"
        f"first request / plain import of Semantic Kernel and its OpenAI connector"
        f"  {seconds / plain:.2f}x   ({plain:.2f} s)"
    )
    return seconds <= goal


def row(bench: Bench, suites: Sequence[Suite], python_s: float) -> tuple[str, float]:
    """The median run of one size, and its ratio to the limit."""
    run = middle([suite.run for suite in suites])
    suite = next(suite for suite in suites if suite.run is run)
    limit = bench.limit_s(suite.cases, python_s)
    text = (
        f"{suite.cases:7}{run.wall_s:7.2f} s{limit:7.2f} s{run.wall_s / limit:7.2f}x"
        f"{run.cpu_s * 1000 / suite.cases:9.1f} ms{run.peak_mb:6.0f} MB"
        f"{suite.peak:9}{suite.others:8.2f}"
    )
    return text, run.wall_s / limit


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--n", default="1,10,100,1000", help="numbers of cases")
    parser.add_argument("--parallel", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3, help="runs of each row; the median counts")
    parser.add_argument("--latency-ms", type=float, default=200)
    parser.add_argument("--backend", choices=[SEMANTIC_KERNEL, CHAT], default=SEMANTIC_KERNEL)
    parser.add_argument("--check", action="store_true", help="exit with 1 when a goal is missed")
    parser.add_argument("--command", default=f"{shlex.quote(sys.executable)} -P -m holodeck")
    return parser.parse_args()


def benchmark(given: argparse.Namespace) -> bool:
    """Print all rows; whether every goal was met."""
    sizes = [int(n) for n in given.n.split(",")]
    load = ", ".join(f"{x:.2f}" for x in os.getloadavg())
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"Python {python}, {os.cpu_count()} cores, load {load}; others = cores taken by others\n")
    with server(given.latency_ms) as url, tempfile.TemporaryDirectory() as name:
        folder, home = Path(name, "work"), Path(name, "home")
        folder.mkdir()
        home.mkdir()
        for cases in sizes:
            write_agent(folder, url, cases, given.backend)
        bench = Bench(
            shlex.split(given.command),
            given.parallel,
            given.runs,
            given.latency_ms / 1000,
            url,
            folder,
            environment(home),
            given.backend,
        )
        started, python_s = startup_rows(bench)
        return suite_rows(bench, sizes, python_s) and started


def main() -> int:
    given = options()
    try:
        met = benchmark(given)
    except NotCounted as error:
        print(f"not counted: {error}", file=sys.stderr)
        return 1
    return 1 if given.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
