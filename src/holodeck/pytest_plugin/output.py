"""What pytest prints about agents, made inert: no control sequences and no commands to CI."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from holodeck.lib.support.text import inert, inert_but_colored, plural
from holodeck.pytest_plugin import Row

COLOURS = {
    "passed": "green",
    "flaky": "yellow",
    "failed": "red",
    "error": "red",
    "skipped": "yellow",
}
MIN_YELLOW = 0.7


def clean_report(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make the reasons, tracebacks and captured output of a test inert; logs keep their colors."""
    report.longrepr = _clean(report.longrepr)
    report.sections = [(title, inert_but_colored(text)) for title, text in report.sections]


def _clean(value: Any) -> Any:
    """Return texts inert; change pytest's representations of tracebacks in place."""
    if isinstance(value, str):
        return inert(value)
    if type(value) in (list, tuple):
        return type(value)(map(_clean, value))
    if hasattr(value, "toterminal"):
        for name, part in vars(value).items():
            setattr(value, name, _clean(part))
    return value


def write_summary(
    terminal: pytest.TerminalReporter, rows: Sequence[tuple[str, Row]], never_run: Sequence[str]
) -> None:
    """Write a line for each scenario of a test, its reason, and the totals."""
    terminal.write_sep("=", "holodeck")
    for nodeid in never_run:
        terminal.write("NOT RUN", red=True)
        message = "a scenario was created and never run; write `await scenario.run(…)`"
        terminal.write_line(inert(f" {message} ({nodeid})"))
    if not rows:
        return
    for nodeid, row in rows:
        terminal.write(f"{row['status'].upper():<6}", **{COLOURS[row["status"]]: True})
        terminal.write_line(inert(f" {_describe(row)} ({nodeid})", keep_newlines=False))
        for line in inert(row["reason"]).splitlines():
            terminal.write_line(f"         {line}")
    totals, colour = _totals([row for _, row in rows])
    terminal.write_line(totals, **{colour: True})


def _describe(row: Row) -> str:
    passed = f", criteria {row['passed_criteria']}/{row['criteria']}" if row["criteria"] else ""
    return f"{row['name']}: {row['seconds']:.2f} s, agent {row['agent_seconds']:.2f} s{passed}"


def _totals(rows: list[Row]) -> tuple[str, str]:
    """Return the last line and its colour; skipped scenarios do not count for the rate."""
    count = Counter(row["status"] for row in rows)
    listed = ", ".join(f"{count[status]} {status}" for status in COLOURS if count[status])
    counts = f"{plural(len(rows), 'scenario')}: {listed}"
    decided = len(rows) - count["skipped"]
    if not decided:
        return counts, "yellow"
    rate = (count["passed"] + count["flaky"]) / decided
    colour = "green" if rate == 1 else "yellow" if rate >= MIN_YELLOW else "red"
    return f"{counts}; success rate {rate:.0%}", colour
