"""How often three gates are wrong: false alarms, and broken cases that they miss.

    python benchmarks/gate.py [--runs 4000] [--seed 1]

Each simulated run has 100 cases that fail by chance in 5 % of their runs; in half of the runs one
case is broken and always fails. The gates see what `holodeck test --baseline` sees:

any flip     a case passed in the baseline and fails now
rate fell    the pass rate fell significantly (exact McNemar test, p <= 0.05)
regression   `lib.test_runner.gate`: a case that passed before and fails runs again three times
"""

import argparse
import random
from collections.abc import Callable, Sequence

from holodeck.lib.compare.gate import DEFAULT_CONFIRM, Suspect, decide, has_passed
from holodeck.lib.compare.pairs import mcnemar_p_value
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_result import TestResult

CASES, NOISE, SIGNIFICANT = 100, 0.05, 0.05
RESULTS = {
    passed: TestResult(
        test_input="",
        passed=passed,
        outcome=Outcome.PASSED if passed else Outcome.FAILED,
        execution_time_ms=0,
        timestamp="",
    )
    for passed in (True, False)
}

Gate = Callable[["Run"], bool]


class Run:
    """The verdicts of a baseline, of a run, and of further runs on request."""

    def __init__(self, draw: random.Random, history: int, broken: int | None) -> None:
        self._draw, self._broken = draw, broken
        self.before = [[self._is_ok() for _ in range(history)] for _ in range(CASES)]
        self.now = [self.again(case) for case in range(CASES)]

    def again(self, case: int) -> bool:
        return case != self._broken and self._is_ok()

    def _is_ok(self) -> bool:
        return self._draw.random() >= NOISE


def any_flip(run: Run) -> bool:
    return any(before[0] and not now for before, now in zip(run.before, run.now, strict=True))


def rate_fell(run: Run) -> bool:
    pairs = [(before[0], now) for before, now in zip(run.before, run.now, strict=True)]
    lost, won = pairs.count((True, False)), pairs.count((False, True))
    p_value = mcnemar_p_value(lost, won)
    return lost > won and p_value is not None and p_value <= SIGNIFICANT


def regression(run: Run) -> bool:
    for case, (before, now) in enumerate(zip(run.before, run.now, strict=True)):
        if now or not has_passed(before[0], sum(before), len(before)):
            continue
        suspect = Suspect(case, str(case), was_flaky=not all(before))
        further = [RESULTS[run.again(case)] for _ in range(DEFAULT_CONFIRM)]
        if decide(suspect, further, DEFAULT_CONFIRM).state == "regression":
            return True
    return False


def share(gate: Gate, runs: Sequence[Run]) -> float:
    return sum(map(gate, runs)) / len(runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(f"{CASES} cases, {NOISE:.0%} noise, {given.runs} runs of each kind")
    print("| recorded runs in the baseline | gate | false alarms | one broken case found |")
    print("| --- | --- | --- | --- |")
    for history in (1, 3, 10):
        draw = random.Random(given.seed)
        healthy = [Run(draw, history, None) for _ in range(given.runs)]
        broken = [Run(draw, history, draw.randrange(CASES)) for _ in range(given.runs)]
        for gate in (any_flip, rate_fell, regression):
            name = gate.__name__.replace("_", " ")
            print(
                f"| {history} | {name} | {share(gate, healthy):.1%} | {share(gate, broken):.1%} |"
            )


if __name__ == "__main__":
    main()
