"""The faults and what came of them, as a page of the documentation."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from support.faults import CASES, HARMLESS, PERMANENT, TRANSIENT, WAYS, Kind, Outcome, outcomes

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "faults.md"
_DATA = yaml.safe_load(Path(__file__).with_name("peer_faults.yaml").read_text(encoding="utf-8"))
PEERS: list[str] = _DATA["peers"]
MEASURED: dict[str, list[int | str]] = _DATA["faults"]
"""Kind of fault → what came of it with each of the peers."""

LONGEST = 110
HEAD = f"""# Provider faults

After reading this page you know how holodeck reacts to each fault of a model provider, and how
other harnesses react.

`scripts/faults` writes this page from a run: {CASES} cases, each of which meets the fault at its
first attempt (or its first five), through the real runner on Semantic Kernel and on `backend:
chat`, with default settings except shorter waits. `llm_timeout` (here 2 instead of 60 seconds) ends
a call to a silent server; a shorter `attempt_timeout` leaves time for another attempt.
`tests/reliability` checks every row, and also repeats each fault forever in one of a hundred cases.

The numbers are cases out of ten with the correct result. We measured the other harnesses once
each on 2026-11-21, with the settings that their documentation suggests. An empty field was not
measured; – means that the fault cannot happen there. For pydantic-evals and agenticassure, the
openai client of the task does the retries. A case without a response must not pass.
"""

Cells = Mapping[tuple[str, str], str]
"""Kind of fault and way to the model → what came of it, in the words of the page."""


def table() -> str:
    """The page, from a run of everything."""
    return page(
        {(found.kind.name, way): cell(found) for way in WAYS for found in outcomes(WAYS[way])}
    )


def page(cells: Cells) -> str:
    """The page with these words about our own ways."""
    return "\n".join(
        [
            HEAD,
            *_section("Transient faults, which are retried", TRANSIENT, cells),
            *_section("Unusual but valid responses", HARMLESS, cells),
            *_section("Permanent faults", PERMANENT, cells),
        ]
    )


def cells_on_page() -> dict[tuple[str, str], str]:
    """What the page says about our own ways."""
    rows = [
        re.split(r" ?\| ?", line)[1:]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    return {(row[0], way): row[at] for row in rows for at, way in enumerate(WAYS, 1)}


def cell(outcome: Outcome) -> str:
    """What came of a fault, in a few words."""
    if outcome.kind.is_transient:
        tries = f" ({outcome.attempts} attempts)" if outcome.attempts > 1 else ""
        return f"{outcome.passed} of {CASES}{tries}"
    kind = "error" if outcome.kind.ends == "error" else "failed"
    reason = outcome.reason.replace("|", "\\|")
    return f"{kind}, “{reason if len(reason) <= LONGEST else f'{reason[: LONGEST - 1]}…'}”"


def _section(title: str, kinds: Sequence[Kind], cells: Cells) -> Iterator[str]:
    yield f"## {title}\n"
    yield _row("fault", [*WAYS, *PEERS])
    yield "| --- " * (len(WAYS) + len(PEERS) + 1) + "|"
    for kind in kinds:
        ours = [cells.get((kind.name, way), "") for way in WAYS]
        yield _row(kind.name, [*ours, *map(str, MEASURED.get(kind.name, [""] * len(PEERS)))])
    if kinds is TRANSIENT:
        yield _row("**survived**", _sums(cells))
    yield ""


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {' | '.join([name, *cells])} |".replace("  ", " ")


def _sums(cells: Cells) -> Iterator[str]:
    """Of how many kinds everybody's ten cases all end right."""
    for way in WAYS:
        ours = [cells.get((kind.name, way), "") for kind in TRANSIENT]
        yield f"{sum(one.startswith(f'{CASES} of') for one in ours)} of {len(ours)}"
    rows = [MEASURED[kind.name] for kind in TRANSIENT if kind.name in MEASURED]
    for column in zip(*rows, strict=True):
        tried = [one for one in column if one != "–"]
        yield f"{sum(one == CASES for one in tried)} of {len(tried)}"
