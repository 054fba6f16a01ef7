"""How often three gates let a judge decide that must not, and one that may.

    python benchmarks/judge_gate.py [--checks 2000] [--seed 1]

Each simulated check draws a judge's verdicts on as many good as bad labels. A judge may decide if
its true kappa is at least 0.6 and at most 10 % of the bad responses pass. The gates are:

kappa        the observed kappa is at least 0.6
kappa - SE   the observed kappa, less 1.64 standard errors, is at least 0.6
exact        `lib.judge_check.gate`: bounds of kappa and of false passes that hold with few labels
"""

import argparse
import random
from collections.abc import Callable

from holodeck.lib.judge_check.gate import DEFAULT_LIMITS, gate_verdict
from holodeck.lib.judging.agreement import Agreement

JUDGES = (
    ("kappa 0.4", 0.70, 0.70),
    ("kappa 0.6 at the limit, 20 % false passes", 0.80, 0.80),
    ("kappa 0.8, 18 % false passes", 0.98, 0.82),
    ("kappa 0.55, 2 % false passes", 0.57, 0.98),
    ("10 % false passes at the limit, kappa 0.88", 0.98, 0.90),
    ("deserves it: kappa 0.94, 2 % false passes", 0.96, 0.98),
    ("deserves it: kappa 0.98, 1 % false passes", 0.99, 0.99),
)
SIZES = (20, 30, 60, 100, 200)


def observed_kappa(counts: Agreement) -> bool:
    return (counts.kappa or 0) >= DEFAULT_LIMITS.min_kappa


def kappa_less_error(counts: Agreement) -> bool:
    low = (counts.kappa or 0) - 1.64 * (counts.kappa_error or 0)
    return low >= DEFAULT_LIMITS.min_kappa


def exact(counts: Agreement) -> bool:
    return gate_verdict(counts) == "may gate"


def share(gate: Callable[[Agreement], bool], checks: list[Agreement]) -> float:
    known: dict[Agreement, bool] = {}
    for one in checks:
        if one not in known:
            known[one] = gate(one)
    return sum(known[one] for one in checks) / len(checks)


def drawn(draw: random.Random, labels: int, sensitivity: float, specificity: float) -> Agreement:
    half = labels // 2
    hits = sum(draw.random() < sensitivity for _ in range(half))
    refused = sum(draw.random() < specificity for _ in range(half))
    return Agreement(hits, half - refused, refused, half - hits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checks", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print("| judge | labels | kappa | kappa - SE | exact |")
    print("| --- | --- | --- | --- | --- |")
    for name, sensitivity, specificity in JUDGES:
        for labels in SIZES:
            draw = random.Random(given.seed)
            checks = [drawn(draw, labels, sensitivity, specificity) for _ in range(given.checks)]
            shares = (share(gate, checks) for gate in (observed_kappa, kappa_less_error, exact))
            print(f"| {name} | {labels} | {' | '.join(f'{one:.1%}' for one in shares)} |")


if __name__ == "__main__":
    main()
