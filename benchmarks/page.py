"""Puts measured numbers into docs/performance.md.

    python benchmarks/page.py results.json [docs/performance.md]

Exits with 1 when the page does not explain a missed goal: each needs a line `- **S3 chat**: why`.
"""

import re
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from promises import EITHER
from table import DISTURBED, MISSED, Row, Table
from tasks import BACKENDS

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
MEASURED = re.compile(r"(<!-- measured -->\n).*?(<!-- /measured -->)", re.DOTALL)


def block(table: Table) -> str:
    """The table as Markdown, with what made it."""
    peers = list(table.versions)
    head = ["promise", *BACKENDS, *(f"{name} {table.versions[name]}" for name in peers)]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for (number, what), rows in groupby(table.rows, key=lambda row: (row.id, row.what)):
        found = {row.who: row for row in rows}
        ours = [cell(found.get(who) or found.get(EITHER)) for who in BACKENDS]
        cells = [*ours, *(cell(found.get(who)) for who in peers)]
        lines.append(f"| {number} {what} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", _origin(table)])


def cell(row: Row | None) -> str:
    if row is None or (row.value is None and row.raw == "not run"):
        return ""
    if row.is_peer and row.value is not None:
        return row.shown
    if row.value is None:
        return row.raw.partition(" …")[0].replace("|", "\\|")
    parts = [row.shown]
    if row.goal is not None:
        parts.append(f"(≤ {row.goal:.3g})")
    if row.verdict in {MISSED, DISTURBED}:
        parts.append(f"**{row.verdict.lower()}**")
    return " ".join(parts)


def _origin(table: Table) -> str:
    wider = f", {table.slack:g} times wider" if table.slack != 1 else ""
    return (
        f"Made by `{table.command}` with Python {table.python} on {table.cores} cores."
        f" In brackets the goals{wider}; {len(table.missed)} missed,"
        f" {len(table.undecided)} undecided because others used the machine."
    )


def pasted(text: str, table: Table) -> str:
    """The page with the block between its marks replaced."""
    if not MEASURED.search(text):
        sys.exit("the page has no <!-- measured --> … <!-- /measured -->")
    return MEASURED.sub(lambda found: f"{found[1]}\n{block(table)}\n\n{found[2]}", text)


def unexplained(text: str, table: Table) -> list[str]:
    """The missed goals that the page says nothing of."""
    missed = dict.fromkeys(f"{row.id} {row.who}" for row in table.missed)
    return [name for name in missed if f"**{name}**" not in text]


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        sys.exit("usage: python benchmarks/page.py results.json [page.md]")
    table = Table.read(Path(arguments[0]))
    page = Path(arguments[1]) if len(arguments) > 1 else PAGE
    text = pasted(page.read_text("utf-8"), table)
    page.write_text(text, "utf-8")
    missing = unexplained(text, table)
    for name in missing:
        print(f"{page.name} does not say why this goal was missed: **{name}**", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
