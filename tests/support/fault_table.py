"""The faults and what came of them, as a page of the documentation."""

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

`scripts/faults` writes this page from a run: {CASES} cases, each of which meets the fault at its
first attempt (or its first five), on Semantic Kernel and on `backend: chat`, with default settings
except shorter waits: `llm_timeout`, which ends a call to a silent server, is 2 instead of 60
seconds. `tests/reliability` checks every row, and repeats each fault forever in one of a hundred
cases.
"""

PEERS_HEAD = f"""## Other harnesses

Cases of {CASES} with the correct result; a case without a response must not pass. We measured each
harness once, on 2026-11-21, with the settings that its documentation suggests. – means that the
fault cannot happen there. For pydantic-evals and agenticassure, the openai client of the task does
the retries.
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
            *_peers(),
        ]
    )


def cells_on_page() -> dict[tuple[str, str], str]:
    """What the page says about our own ways."""
    ours = PAGE.read_text(encoding="utf-8").partition(PEERS_HEAD)[0]
    rows = [line.strip("| ").split(" | ") for line in ours.splitlines() if line.startswith("| ")]
    return {
        (name, way): row[at]
        for row in rows
        for name in row[0].split("; ")
        for at, way in enumerate(WAYS, 1)
    }


def cell(outcome: Outcome) -> str:
    """What came of a fault, in a few words."""
    if outcome.kind.is_transient:
        tries = f" ({outcome.attempts} attempts)" if outcome.attempts > 1 else ""
        return f"{outcome.passed} of {CASES}{tries}"
    kind = "error" if outcome.kind.ends == "error" else "failed"
    status = outcome.kind.name.removeprefix("HTTP ")[:3]
    # faults that differ only in their status share a row
    reason = outcome.reason.replace(
        f"HTTP {status}: status {status} for a reason", "HTTP 4xx: the reason"
    ).replace("|", "\\|")
    return f"{kind}, “{reason if len(reason) <= LONGEST else f'{reason[: LONGEST - 1]}…'}”"


def _section(title: str, kinds: Sequence[Kind], cells: Cells) -> Iterator[str]:
    ours = {kind.name: [cells.get((kind.name, way), "") for way in WAYS] for kind in kinds}
    yield f"## {title}\n"
    yield from _table([["fault", *WAYS], *_grouped(ours)])


def _peers() -> Iterator[str]:
    """What came of the faults with each of the others, and of how many all cases ended right."""
    transient = [MEASURED[kind.name] for kind in TRANSIENT if kind.name in MEASURED]
    possible = [[end for end in ends if end != "–"] for ends in zip(*transient, strict=True)]
    survived = [f"{ends.count(CASES)} of {len(ends)}" for ends in possible]
    rows = _grouped({name: [*map(str, ends)] for name, ends in MEASURED.items()})
    yield PEERS_HEAD
    yield from _table([["fault", *PEERS], *rows, ["**transient ones survived**", *survived]])


def _grouped(cells: Mapping[str, list[str]]) -> Iterator[list[str]]:
    """The rows of a table; faults with the same cells share one."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, ends in cells.items():
        names.setdefault(tuple(ends), []).append(name)
    for ends, faults in names.items():
        yield ["; ".join(faults), *ends]


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    head, *others = (f"| {' | '.join(row)} |" for row in rows)
    yield from (head, "| --- " * len(rows[0]) + "|", *others, "")
