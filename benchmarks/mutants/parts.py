"""The parts of the code that make verdicts, and the mutants that are drawn from them."""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from itertools import islice, zip_longest
from pathlib import Path

from mutations import Mutant, mutants_of

_MODELS = "holodeck/models"
_RUNNER = "holodeck/lib/test_runner"
_CHECKS = "holodeck/lib/checks"
_COMPARE = "holodeck/lib/compare"
_FRAMEWORKS = "holodeck/lib/backends/frameworks"
_EVALUATORS = "holodeck/lib/evaluators"
PARTS = {
    "checks": (f"{_RUNNER}/grading/checks.py",),
    "gates": (f"{_COMPARE}/gate.py",),
    "comparison": (f"{_COMPARE}/run_comparison.py", f"{_COMPARE}/pairs.py"),
    "metric base": (f"{_EVALUATORS}/base.py",),
    "metrics": (f"{_EVALUATORS}/*.py",),
    "grading": (
        f"{_RUNNER}/grading/grade.py", f"{_RUNNER}/grading/scoring.py",
        f"{_MODELS}/results/outcome.py",
    ),
    "tool checks": (f"{_CHECKS}/tool_checks.py",),
    "matchers": (f"{_CHECKS}/matching.py", f"{_MODELS}/cases/matchers.py"),
    "trajectories": (f"{_COMPARE}/trajectories.py",),
    "trace checks": (f"{_CHECKS}/trace_checks.py",),
    "criteria": (f"{_RUNNER}/grading/criteria.py", "holodeck/lib/conversation/criteria_judge.py"),
    "repeats": (f"{_RUNNER}/scheduling/repeats.py",),
    "judging": ("holodeck/lib/judging/*.py", "holodeck/lib/judge_check/*.py"),
    "adapters": (f"{_FRAMEWORKS}/*.py", f"{_FRAMEWORKS}/*/*.py"),
    "configuration": ("holodeck/config/checks/*.py",),
    "selection": ("holodeck/lib/selection/*.py", "holodeck/lib/records/run_store.py"),
    "runs": tuple(
        f"{_RUNNER}/{name}.py"
        for name in (
            "case_run", "case_state", "eval_kwargs_builder", "observe", "reporter", "rescore",
            "scheduling/stop_policy", "turns/conversation", "turns/script_steps",
        )
    ),
    "results": (f"{_MODELS}/test_result.py", f"{_MODELS}/results/turn.py"),
}  # fmt: skip
"""Part → its modules; a module that several fit belongs to the first of them."""
ELSEWHERE = (f"{_EVALUATORS}/azure*.py",)
"""Of these, the modules whose library the tests replace."""


def part_of(path: str) -> str | None:
    """The part that a module below `src` belongs to; None if it makes no verdicts."""
    if any(fnmatch(path, pattern) for pattern in ELSEWHERE):
        return None
    parts = (
        part
        for part, patterns in PARTS.items()
        if any(
            fnmatch(path, pattern) and path.count("/") == pattern.count("/") for pattern in patterns
        )
    )
    return next(parts, None)


def all_mutants(
    src: Path, parts: Collection[str] = (), only: Collection[str] = ()
) -> dict[str, list[Mutant]]:
    """Part → every mutant of its modules, in the order of their paths and lines."""
    mutants: dict[str, list[Mutant]] = {part: [] for part in parts or PARTS}
    for path in sorted(src.rglob("*.py")):
        name = path.relative_to(src).as_posix()
        part = part_of(name)
        is_only = not only or any(fnmatch(name, f"*{text}*") for text in only)
        if part in mutants and is_only:
            mutants[part] += mutants_of(name, path.read_bytes())
    return mutants


def draw(mutants: Mapping[str, Sequence[Mutant]], count: int, seed: int) -> list[Mutant]:
    """As many of each part as of any other, until it has no more; one part after the other in turn.

    What is drawn of a part depends neither on the other parts nor on the count, but that a greater
    count adds to it. So a longer run continues a shorter one.
    """
    shuffled = [
        random.Random(f"{seed} {part}").sample(list(all_of_part), len(all_of_part))
        for part, all_of_part in mutants.items()
    ]
    in_turn = (mutant for row in zip_longest(*shuffled) for mutant in row if mutant is not None)
    return list(islice(in_turn, count))


def at_places(mutants: Mapping[str, Sequence[Mutant]], places: Sequence[str]) -> Iterator[Mutant]:
    """Every mutant of these lines, each written as FILE:LINE."""
    wanted = [place.removeprefix("src/").rpartition(":")[::2] for place in places]
    for mutant in (mutant for of_part in mutants.values() for mutant in of_part):
        if any(mutant.path.endswith(path) and str(mutant.line) == line for path, line in wanted):
            yield mutant
