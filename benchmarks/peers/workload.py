"""The work that every harness does: ask N times, compare each answer with the one expected."""

import json
from pathlib import Path
from typing import TypedDict

SYSTEM = "Do what the user says."
MODEL = "fake"


class Case(TypedDict):
    name: str
    input: str
    expected: str


def case(index: int) -> Case:
    """What is asked, and what `fake_llm.py` answers."""
    asked = f"Say case-{index:05} please"
    return {"name": f"case-{index:05}", "input": asked, "expected": f"OK: {asked}"}


def write_cases(folder: Path, cases: int) -> None:
    """`cases.json`, which the workloads in the peers' environments read."""
    document = [case(index) for index in range(cases)]
    (folder / "cases.json").write_text(json.dumps(document), "utf-8")
