"""What became of each mutant: kept in a file, so that a run can be continued, and counted."""

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mutations import Mutant
from parts import part_of

from holodeck.lib.judging.agreement import Proportion

EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
Kind = Literal["killed", "hung", "survived", "equivalent"]
Key = tuple[str, int, str, str]


@dataclass
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    before: str
    after: str
    kind: Kind
    by: str = ""
    """The test that saw it, or the reason why none can."""
    ran: int = 0
    tests: int = 0
    """How many tests run the function."""

    @property
    def key(self) -> Key:
        return self.mutant.path, self.mutant.line, self.before, self.after

    def __str__(self) -> str:
        place = f"src/{self.mutant.path}:{self.mutant.line}"
        lines = [f"{self.kind} {place} {self.mutant.function} ({self.mutant.kind})"]
        lines += [f"    - {self.before}", f"    + {self.after}"]
        if self.kind == "survived":
            lines.append(f"    {self.ran} of {self.tests} tests that run it")
        if self.by:
            lines.append(f"    {self.by}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Results:
    """A file with a line for each mutant that was tried; the last line of a mutant counts."""

    path: Path | None
    """None if nothing is kept."""

    def add(self, verdict: Verdict, seed: int) -> None:
        if self.path is None:
            return
        path, line, before, after = verdict.key
        row = {
            "place": f"src/{path}:{line}", "kind": verdict.mutant.kind, "before": before,
            "after": after, "verdict": verdict.kind, "by": verdict.by, "ran": verdict.ran,
            "tests": verdict.tests, "seed": seed,
        }  # fmt: skip
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def seen(self) -> dict[Key, tuple[Kind, str]]:
        """Mutants that tests saw, and how; the rest is worth another try."""
        if self.path is None or not self.path.is_file():
            return {}
        seen: dict[Key, tuple[Kind, str]] = {}
        for text in self.path.read_text(encoding="utf-8").splitlines():
            row = json.loads(text)
            path, _, line = row["place"].removeprefix("src/").rpartition(":")
            key = (path, int(line), row["before"], row["after"])
            seen.pop(key, None)
            if row["verdict"] in {"killed", "hung"}:
                seen[key] = row["verdict"], row["by"]
        return seen


def equivalents() -> dict[tuple[str, str, str], str]:
    """Mutants that change nothing that can be seen, each with its reason."""
    entries = tomllib.loads(EQUIVALENTS.read_text(encoding="utf-8")).get("equivalent", [])
    return {("holodeck/" + one["path"], one["before"], one["after"]): one["why"] for one in entries}


def stale_equivalents(mutants: Iterable[Mutant], src: Path) -> list[str]:
    """Entries for modules of these mutants that none of them fits."""
    mutants = list(mutants)
    paths = {mutant.path for mutant in mutants}
    wanted = [entry for entry in equivalents() if entry[0] in paths]
    sources = {path: (src / path).read_bytes() for path, _, _ in wanted}
    known = {
        (mutant.path, *mutant.lines(sources[mutant.path]))
        for mutant in mutants
        if mutant.path in sources
    }
    return [f"{entry[0]}: {entry[2]}" for entry in wanted if entry not in known]


def table(verdicts: Sequence[Verdict]) -> str:
    """A line for each part, and one for all."""
    by_part: dict[str, Counter[Kind]] = {}
    for verdict in verdicts:
        by_part.setdefault(part_of(verdict.mutant.path) or "", Counter())[verdict.kind] += 1
    total = sum(by_part.values(), Counter[Kind]())
    lines = [f"{'part':<14} killed hung survived equivalent   seen  at least"]
    lines += [_line(part, count) for part, count in {**by_part, "all": total}.items()]
    return "\n".join(lines)


def _line(part: str, count: Mapping[Kind, int]) -> str:
    seen = proportion(count)
    low = (seen.interval or (1.0, 1.0))[0]
    rate = 1.0 if seen.value is None else seen.value
    return (
        f"{part:<14} {count['killed']:6} {count['hung']:4} {count['survived']:8}"
        f" {count['equivalent']:10} {rate:6.1%} {low:9.1%}"
    )


def proportion(count: Mapping[Kind, int]) -> Proportion:
    """How many mutants tests see, of those that change something."""
    seen = count["killed"] + count["hung"]
    return Proportion(seen, seen + count["survived"])
