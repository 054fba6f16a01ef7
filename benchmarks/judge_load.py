"""How well the time of judges is used: 100 cases with three judged metrics, 20 at once.

    python benchmarks/judge_load.py [--cases 100] [--parallel 20] [--latency-ms 100] [--runs 3]
                                    [--check]

The agent answers at once, the judge after a fixed time. The ideal is `ceil(calls / parallel) ×
latency`, from the judge's first question to its last answer, so that importing a library is not in
it; the whole process is shown beside it. A run counts only when every case passed and the judge was
asked exactly as often as it should be. `--check` exits with 1 when the goal of 1.5 is missed.
"""

import argparse
import math
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from contestants import environment
from loopback import configure, server, stats
from measure import measure

GOAL = 1.5
FAMILIES = {
    "judge": [f"type: judge, name: m{i}, criteria: [Is it right?]" for i in range(3)],
    "geval": [f"type: geval, name: m{i}, evaluation_steps: [Read it.]" for i in range(3)],
    "azure": [f"type: azure, metric: {name}" for name in ("fluency", "coherence", "relevance")],
}
"""Three metrics, each one call of the judge."""
METRICS = 3
AGENT = "def answer(question):\n    return f'Yes, {question}'\n"


@dataclass(frozen=True)
class Load:
    """The work of one run."""

    cases: int
    parallel: int
    latency_s: float

    @property
    def calls(self) -> int:
        return self.cases * METRICS

    @property
    def ideal_s(self) -> float:
        return math.ceil(self.calls / self.parallel) * self.latency_s


def config(family: str, load: Load, url: str) -> str:
    metrics = "".join(f"    - {{{metric}}}\n" for metric in FAMILIES[family])
    cases = "".join(f"  - {{name: c{i}, input: case-{i:05}}}\n" for i in range(load.cases))
    return (
        'name: judged\nbackend: "bot:answer"\nevaluations:\n'
        f'  model: {{provider: openai, name: fake, endpoint: "{url}", api_key: x}}\n'
        f"  metrics:\n{metrics}test_cases:\n{cases}"
    )


def run_once(family: str, load: Load, url: str) -> tuple[float, float]:
    """Seconds of judging and of the whole process. Raises RuntimeError if the work was not done."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bot.py").write_text(AGENT, "utf-8")
        (folder / "agent.yaml").write_text(config(family, load, url), "utf-8")
        configure(url, latency_ms=load.latency_s * 1000)
        command = [sys.executable, "-P", "-m", "holodeck", "test", "--quiet"]
        command += ["--parallel", str(load.parallel)]
        ran, seen = measure(command, folder, environment(folder)), stats(url)
    if ran.code != 0 or seen["requests"] != load.calls or seen["bleed"]:
        raise RuntimeError(
            f"{family}: exit {ran.code}, {seen['requests']} of {load.calls} questions,"
            f" {seen['bleed']} mixed up\n{ran.output[-2000:]}"
        )
    return seen["last_answer_at"] - seen["first_request_at"], ran.wall_s


def benchmark(load: Load, runs: int) -> bool:
    """Print a row for each family; whether the goal was met by all."""
    met = True
    print(f"{'':8}{'judging':>10}{'ideal':>9}{'ratio':>8}{'process':>10}")
    with server(load.latency_s * 1000) as url:
        for family in FAMILIES:
            run_once(family, load, url)  # writes byte code, and is not counted
            found = [run_once(family, load, url) for _ in range(runs)]
            judging, whole = (statistics.median(column) for column in zip(*found, strict=True))
            ratio = judging / load.ideal_s
            met &= ratio <= GOAL
            print(
                f"{family:8}{judging:8.2f} s{load.ideal_s:7.2f} s{ratio:7.2f}x{whole:8.2f} s"
                f"   goal <= {GOAL}  {'ok' if ratio <= GOAL else 'MISSED'}"
            )
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--parallel", type=int, default=20)
    parser.add_argument("--latency-ms", type=float, default=100)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="exit with 1 when the goal is missed")
    given = parser.parse_args()
    try:
        met = benchmark(Load(given.cases, given.parallel, given.latency_ms / 1000), given.runs)
    except RuntimeError as error:
        print(f"not counted: {error}", file=sys.stderr)
        return 1
    return 1 if given.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
