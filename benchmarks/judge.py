"""How well the embedded 1.5B model judges the labelled answers that come with holodeck.

usage: python benchmarks/judge.py [LOCAL MODEL]
"""

import asyncio
import sys
import time

from holodeck.lib.judging.check_report import render_table
from holodeck.lib.judging.labels import DEFAULT_LABELS, read_labels
from holodeck.lib.test_runner.judge_check import load_named_judge

MODEL = "qwen2.5-coder-1.5b-instruct"


def main(model: str = MODEL) -> int:
    """Print the table; 1 if the judge does not tell every good answer from its bad twin."""
    subject = load_named_judge(f"local/{model}", None, lambda _: None)
    started = time.perf_counter()
    check = asyncio.run(subject.checker(read_labels(DEFAULT_LABELS), tell).run(repeats=3))
    print(render_table(check))
    print(f"{time.perf_counter() - started:.0f} s in all, loading the model included")
    return 0 if check.agreement.accuracy.value == 1 and not check.errors else 1


def tell(done: int, planned: int) -> None:
    print(f"\r{done} of {planned}", end="\n" if done == planned else "", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
