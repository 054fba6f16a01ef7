"""The page of promises: which there are, and the tests that hold each."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "promises.md"

_ROW = re.compile(r"^\| (?P<id>[A-Z]\d+) \| (?P<kept>.*?) \|(?P<tests>.*)\|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


@dataclass(frozen=True)
class Promise:
    """A row of the page."""

    id: str
    kept: str
    tests: tuple[tuple[str, str], ...]
    """File below tests/, and name."""


def promises() -> list[Promise]:
    rows = _ROW.finditer(PAGE.read_text(encoding="utf-8"))
    return [Promise(row["id"], row["kept"], tuple(_TEST.findall(row["tests"]))) for row in rows]


def verdicts(outcomes: dict[str, bool]) -> Iterator[bool]:
    """Of each promise whose tests ran: whether all of them passed.

    `outcomes` are by `tests/file.py::test`, without parameters.
    """
    for promise in promises():
        nodes = [f"tests/{file}::{name}" for file, name in promise.tests]
        if nodes and all(node in outcomes for node in nodes):
            yield all(outcomes[node] for node in nodes)
