"""All mutants of a project, and a fair sample of those of all."""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from mutants.csv_operators import csv_slips
from mutants.line_operators import file_slips, line_slips, renamings
from mutants.mutant import Mutant
from mutants.node_operators import Slip, node_slips
from mutants.project import Project

RETURNED_KEYS = {
    '"tool_calls":': ["tool_call", "toolCalls", "tools", "calls", "tool_results", "Tool_calls"],
    '"name":': ["tool", "function", "Name"],
    '"arguments":': ["argument", "params", "parameters", "kwargs"],
    '"response":': ["answer", "content", "result"],
}
"""Keys of the mapping that an agent returns, and what else they are called."""


def mutants_of(project: Project) -> Iterator[Mutant]:
    """Every mutant of every file, each different from the file as it is."""
    for name in project.data_files:
        text = project.files[name]
        seen = {text.encode()}
        for operator, place, content in _contents(name, text):
            if content not in seen:
                seen.add(content)
                yield Mutant(project.name, name, operator, place, content)
        if project.renames:
            for operator, new in renamings(name):
                yield Mutant(project.name, name, operator, name, text.encode(), new)
    for name in set(project.files) - set(project.data_files):
        yield from _returned_keys(project, name)


def _contents(name: str, text: str) -> Iterator[tuple[str, str, bytes]]:
    for operator, at, new in _slips(name, text):
        line = text.count("\n", 0, at)
        said = (text.splitlines() or [""])[min(line, text.count("\n") - 1)].strip()
        yield operator, f"{line + 1} ({said[:40]})", new.encode("utf-8", "surrogatepass")
    for operator, content in file_slips(text):
        yield operator, "file", content


def _slips(name: str, text: str) -> Iterator[Slip]:
    suffix = name.rpartition(".")[2]
    if suffix == "csv":
        yield from csv_slips(text)
    elif suffix == "jsonl":
        start = 0
        for line in text.splitlines(keepends=True):
            end = start + len(line)
            for operator, at, new in node_slips(line, is_json=True):
                yield operator, start + at, text[:start] + new + text[end:]
            start = end
    else:
        yield from node_slips(text, is_json=suffix == "json")
    yield from line_slips(text, is_yaml=suffix in {"yaml", "yml"})


def _returned_keys(project: Project, name: str) -> Iterator[Mutant]:
    text = project.files[name]
    for key, others in RETURNED_KEYS.items():
        if key in text:
            for other in others:
                content = text.replace(key, f'"{other}":').encode()
                yield Mutant(project.name, name, f"returned key: {other}", key, content)


def sample(projects: Iterable[Project], count: int, seed: int) -> list[Mutant]:
    """So many mutants: from every project alike, and within a project from every operator."""
    chosen = random.Random(seed)
    piles = [_in_turns(list(mutants_of(project)), chosen) for project in projects]
    taken = [
        pile[number]
        for number in range(max(map(len, piles)))
        for pile in piles
        if number < len(pile)
    ]
    return taken[:count]


def _in_turns(mutants: Sequence[Mutant], chosen: random.Random) -> list[Mutant]:
    """In an order by chance in which every operator comes before any comes again."""
    by_operator: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in chosen.sample(mutants, len(mutants)):
        by_operator[mutant.operator].append(mutant)
    ranked = [
        (rank, chosen.random(), mutant)
        for group in by_operator.values()
        for rank, mutant in enumerate(group)
    ]
    return [mutant for *_, mutant in sorted(ranked, key=lambda one: one[:2])]
