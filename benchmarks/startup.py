"""How long it takes to say something without doing anything, against Python with click."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from contestants import environment
from lab import NotCounted
from measure import Measured, measure, median_ratio, middle, others_of

CLICK = "import click; click.command()(lambda: None)()"
FLAGS = ("--help", "--version")


@dataclass(frozen=True)
class Startup:
    """One flag against click's `--help`."""

    flag: str
    ratio: float
    ours_s: float
    click_s: float
    others: float
    times: int


def startups(command: Sequence[str], home: Path, times: int) -> list[Startup]:
    """Each flag so many times, in turn with click. Raises NotCounted."""
    env = environment(home)
    with TemporaryDirectory() as folder:

        def run(*args: str) -> Measured:
            return measure(args, Path(folder), env)

        return [
            _paired(flag, [(run(*command, flag), run(*click())) for _ in range(times + 1)][1:])
            for flag in FLAGS
        ]


def click() -> list[str]:
    return [sys.executable, "-P", "-c", CLICK, "--help"]


def python_s(found: Sequence[Startup]) -> float:
    """T0: the start of Python with click."""
    return median(one.click_s for one in found)


def _paired(flag: str, pairs: Sequence[tuple[Measured, Measured]]) -> Startup:
    ours, theirs = zip(*pairs, strict=True)
    for run in (*ours, *theirs):
        if run.code != 0:
            raise NotCounted(f"{flag}: exit {run.code}\n{run.output[-2000:]}")
    others = others_of([*ours, *theirs])
    ratio = median_ratio(ours, theirs)
    return Startup(flag, ratio, middle(ours).wall_s, middle(theirs).wall_s, others, len(pairs))
