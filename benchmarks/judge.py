"""How well a judge, by default the embedded 1.5B model, judges labelled answers.

usage: python benchmarks/judge.py [LOCAL MODEL] [--model PROVIDER/NAME] [--endpoint URL]
                                  [--set development|held_out]

Without --set, it measures the forty labels that come with holodeck; with it, those of
judge_labels/, which are harder, and prints a Markdown table by kind.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holodeck.lib.judge_check.check_report import describe_gate, render_table
from holodeck.lib.judge_check.check_result import JudgeCheckResult
from holodeck.lib.judge_check.judge_check import CheckedJudge, load_named_judge
from holodeck.lib.judge_check.labels import DEFAULT_LABELS, Label, read_labels
from holodeck.lib.judging.agreement import Proportion, area_under_curve
from holodeck.lib.support.text import printable

MODEL = "qwen2.5-coder-1.5b-instruct"
LABELS = Path(__file__).parent / "judge_labels"
SETS = ("development", "held_out")
COLUMNS = ("Kind", "n", "Accuracy (95 %)", "Good passed", "Bad passed", "Kappa", "AUC")

Labels = dict[str, list[Label]]
"""The labels of each kind."""


def main(arguments: Sequence[str]) -> int:
    options = read_options(arguments)
    subject = load_named_judge(options.model, options.endpoint, lambda _: None)
    started = time.perf_counter()
    code = measure_set(subject, options.set) if options.set else measure_default(subject)
    print(f"{time.perf_counter() - started:.0f} s in all, loading the model included")
    return code


def read_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="judge.py", description=__doc__.splitlines()[0])
    parser.add_argument("local", nargs="?", metavar="LOCAL MODEL", help=f"default: {MODEL}")
    parser.add_argument("--model", metavar="PROVIDER/NAME", help="a judge that is not embedded")
    parser.add_argument("--endpoint", metavar="URL", help="its endpoint")
    parser.add_argument("--set", choices=SETS, help="labels of judge_labels/, with one call each")
    options = parser.parse_args(arguments)
    if options.local and options.model:
        parser.error("name the judge once: LOCAL MODEL or --model")
    options.model = options.model or f"local/{options.local or MODEL}"
    return options


def measure_default(subject: CheckedJudge) -> int:
    """Print the figures; 1 if the judge does not tell every good answer from its bad twin."""
    check = asyncio.run(measured(subject, read_labels(DEFAULT_LABELS), repeats=3))
    print(render_table(check))
    return 0 if check.agreement.accuracy.value == 1 and not check.errors else 1


def measure_set(subject: CheckedJudge, name: str) -> int:
    """Print the table; 1 if the judge could not answer everything."""
    kinds = read_kinds(name)
    labels = [label for kind in kinds.values() for label in kind]
    check = asyncio.run(measured(subject, labels, repeats=1))
    print(render_kinds(check, kinds, name))
    for error in sorted(set(check.errors)):
        print(printable(error), file=sys.stderr)
    return 1 if check.errors else 0


async def measured(subject: CheckedJudge, labels: list[Label], repeats: int) -> JudgeCheckResult:
    """Return what the check found."""
    try:
        return await subject.check(labels, repeats, tell)
    finally:
        await subject.judges.close()


def read_kinds(name: str) -> Labels:
    """Return the labels of a set by kind, which is the name of their file."""
    return {path.stem: read_labels(path) for path in sorted((LABELS / name).glob("*.jsonl"))}


def render_kinds(check: JudgeCheckResult, kinds: Labels, name: str) -> str:
    """Return a row for each kind and for all, and whether the judge may gate, as Markdown."""
    judged = iter(check.judgements)
    parts = {
        kind.replace("_", " "): replace(check, judgements=[next(judged) for _ in labels])
        for kind, labels in kinds.items()
    }
    rows = [
        COLUMNS,
        ["---"] * len(COLUMNS),
        *(row_of(kind, part) for kind, part in parts.items()),
        row_of("all", check),
    ]
    count = f"Inconclusive verdicts ({check.inconclusive}) and errors ({len(check.errors)})"
    return "\n".join(
        [
            f"Judge `{check.judge}` on the set `{name}`, asked once for each label:",
            "",
            *(f"| {' | '.join(row)} |" for row in rows),
            "",
            f"May it gate? {describe_gate(check.gate())}.",
            "",
            f"{count} count as wrong.",
        ]
    )


def row_of(kind: str, check: JudgeCheckResult) -> list[str]:
    found = check.strict_agreement
    passed = found.true_negative_rate
    accuracy = found.accuracy
    low, high = accuracy.interval or (0.0, 1.0)
    return [
        kind,
        str(found.total),
        f"{number(accuracy.value)} ({low:.2f} to {high:.2f})",
        share(found.true_positive_rate),
        share(Proportion(passed.of - passed.count, passed.of)),
        number(found.kappa),
        number(area_under_curve(check.scores)),
    ]


def share(part: Proportion) -> str:
    return f"{part.count} of {part.of}"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def tell(done: int, planned: int) -> None:
    print(f"\r{done} of {planned}", end="\n" if done == planned else "", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
