"""Leaves out duplicates, cuts conversations into turns, and draws samples of imported cases."""

import random
from collections.abc import Sequence

from holodeck.lib.case_import.case import Imported, ImportedCase
from holodeck.lib.support.text import plural


def leave_out_duplicates(imported: Imported) -> None:
    """Keep the first case of those in which the user says the same, and note the others.

    Upper and lower case, white space and punctuation make no difference, expectations do.
    """
    first: dict[object, ImportedCase] = {}
    for case in imported.cases:
        key = (case.user_key, repr(case.evaluations), repr(case.criteria))
        kept = first.setdefault(key, case)
        if kept is not case:
            imported.note(case.location, f"left out: the user says the same at {kept.location}")
    imported.cases = list(first.values())


def split_turns(cases: Sequence[ImportedCase]) -> list[ImportedCase]:
    """Return a case for each turn, with the turns before as its history."""
    found = []
    for case in cases:
        for index, turn in enumerate(case.turns):
            is_last = index == len(case.turns) - 1
            name = f"{case.label} (turn {index + 1})" if len(case.turns) > 1 else case.name
            found.append(
                ImportedCase(
                    location=case.location,
                    turns=[turn],
                    name=name,
                    tags=case.tags,
                    evaluations=case.evaluations if is_last else [],
                    criteria=case.criteria if is_last else [],
                    todo=case.todo if is_last else [],
                    history=[*case.history, *case.turns[:index]],
                )
            )
    return found


def choose(imported: Imported, limit: int | None, sample: int | None, seed: int) -> None:
    """Keep a random sample, or the first cases, in the order of the source, and note the others."""
    cases = imported.cases
    if sample is not None and sample < len(cases):
        kept = sorted(random.Random(seed).sample(range(len(cases)), sample))  # noqa: S311
        imported.cases = [cases[index] for index in kept]
        left = plural(len(cases) - sample, "case")
        imported.note("--sample", f"{left} not chosen (seed {seed})")
    cases = imported.cases
    if limit is not None and limit < len(cases):
        imported.cases = cases[:limit]
        imported.note("--limit", f"{plural(len(cases) - limit, 'case')} left out")
