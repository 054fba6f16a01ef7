"""What is told of the promises: rows with a verdict, as lines of text and as JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from figures import Seen
from lab import NotCounted
from promises import Promise

OK, MISSED, DISTURBED = "ok", "MISSED", "too disturbed"


@dataclass(frozen=True)
class Judge:
    """How strict verdicts are."""

    slack: float
    """Goals are so many times wider."""
    most_others: float
    """Above so many cores taken by others there is no verdict."""

    def verdict(self, value: float, goal: float | None, others: float) -> str:
        if goal is None:
            return ""
        if others > self.most_others:
            return DISTURBED
        return OK if value <= goal else MISSED


@dataclass(frozen=True)
class Row:
    """One promise and one contestant."""

    id: str
    what: str
    unit: str
    who: str
    value: float | None
    """None where nothing was measured; `raw` says why."""
    goal: float | None
    """The most it may be; None where nothing is promised of it."""
    verdict: str
    """"" where there is no goal."""
    raw: str
    others: float | None
    is_peer: bool

    @property
    def shown(self) -> str:
        return "–" if self.value is None else f"{number(self.value)} {self.unit}"

    def line(self) -> str:
        name = f"  {self.who}" if self.is_peer else self.who
        goal = "" if self.goal is None else f"<= {number(self.goal)}"
        others = "" if self.others is None else f"{self.others:.2f}"
        return (
            f"{self.id:4} {self.what:40} {name:20} {self.shown:>10} {goal:>8}  {self.verdict:13}"
            f" {others:>6}  ({self.raw})"
        )


HEAD = f"{'':4} {'':40} {'':20} {'measured':>10} {'goal':>8}  {'verdict':13} {'others':>6}  (raw)"


@dataclass(frozen=True)
class Table:
    """The rows, and what one has to know to read them."""

    command: str
    python: str
    cores: int
    slack: float
    versions: dict[str, str]
    """Of the peers that took part, and of holodeck."""
    rows: list[Row]

    @property
    def missed(self) -> list[Row]:
        return [row for row in self.rows if row.verdict == MISSED]

    @property
    def undecided(self) -> list[Row]:
        return [row for row in self.rows if row.verdict == DISTURBED]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")

    @classmethod
    def read(cls, path: Path) -> "Table":
        raw = json.loads(path.read_text("utf-8"))
        return cls(**{**raw, "rows": [Row(**row) for row in raw["rows"]]})


def rows_of(
    promises: Sequence[Promise], seen: Seen, backends: Sequence[str], judge: Judge
) -> Iterator[Row]:
    """All rows in the order of the promises, the peers' after ours."""
    for promise in promises:
        for who in promise.backends:
            if who in backends or who not in {"chat", "semantic_kernel"}:
                yield _row(promise, seen, who, judge)
        for who in seen.peers if promise.for_peers else ():
            yield _row(promise, seen, who, judge, is_peer=True)


def _row(promise: Promise, seen: Seen, who: str, judge: Judge, is_peer: bool = False) -> Row:
    needed = [seen.tasks[name] for name in promise.needs if name in seen.tasks]
    usual = len(needed) == len(promise.needs) and all(task.is_standard for task in needed)
    goal = promise.goals.get(who) if usual else None
    wide = None if goal is None else goal * judge.slack
    value: float | None = None
    others: float | None = None
    try:
        figure = promise.measure(seen, who)
        value, raw, others = figure.value, figure.raw, figure.others
        verdict = judge.verdict(value, wide, others)
    except NotCounted as error:
        raw = str(error)
        verdict = "" if goal is None or raw.startswith("not run") else MISSED
    sizes = {name: f"{task.cases:,}" for name, task in seen.tasks.items()}
    what = promise.what.format_map({"many": "more", "most": "most"} | sizes)
    return Row(promise.id, what, promise.unit, who, value, wide, verdict, raw, others, is_peer)


def number(value: float) -> str:
    """Three digits that matter, no more."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 0.1 or value == 0 else f"{value:.3f}"
