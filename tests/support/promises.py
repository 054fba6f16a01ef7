"""The promises of the documentation, and the tests that hold each."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "promises.md"
PAGES = (PAGE, ROOT / "docs" / "security.md")
"""The second one has the promises about hostile configurations and responses."""

TESTS = ROOT / "tests" / "reliability" / "promises.yaml"
_ROW = re.compile(r"^- \*\*([A-Z]\d+)\*\* ", re.MULTILINE)


@dataclass(frozen=True)
class Promise:
    """An item of a page."""

    id: str
    tests: tuple[tuple[str, str], ...]
    """File below tests/, and name."""


def promises() -> list[Promise]:
    """Return the promises of the pages. Raises KeyError for one without tests."""
    tests = yaml.safe_load(TESTS.read_text(encoding="utf-8"))
    ids = [id_ for page in PAGES for id_ in _ROW.findall(page.read_text(encoding="utf-8"))]
    return [Promise(id_, tuple(_file_and_name(test) for test in tests[id_])) for id_ in ids]


def _file_and_name(test: str) -> tuple[str, str]:
    file, _, name = test.partition("::")
    return file, name


def verdicts(outcomes: dict[str, bool]) -> Iterator[bool]:
    """Of each promise whose tests ran: whether all of them passed.

    `outcomes` are by `tests/file.py::test`, without parameters.
    """
    for promise in promises():
        nodes = [f"tests/{file}::{name}" for file, name in promise.tests]
        if nodes and all(node in outcomes for node in nodes):
            yield all(outcomes[node] for node in nodes)
